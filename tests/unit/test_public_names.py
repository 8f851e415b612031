"""No two public classes of the product share a name, so that one search finds the one that is meant."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest
from product import product_files


def shared_names(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Public classes at the top of a module that several modules define, with those modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for name in public_classes(ast.parse(source).body):
            places[name].append(module)
    return {name: modules for name, modules in sorted(places.items()) if len(modules) > 1}


def public_classes(body: Iterable[ast.stmt]) -> list[str]:
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def sources_of_the_product() -> dict[str, str]:
    return {module: file.read_text(encoding="utf-8") for module, file in product_files().items()}


@pytest.mark.long
def test_no_two_public_classes_share_a_name() -> None:
    assert shared_names(sources_of_the_product()) == {}


@pytest.mark.long
def test_a_second_class_with_the_name_of_another_is_noticed() -> None:
    sources = sources_of_the_product()
    sources["hush_aggregator/planted.py"] = "class Task:\n    pass\n\n\nclass _Task:\n    pass\n"
    assert shared_names(sources)["Task"] == ["hush_common/task.py", "hush_aggregator/planted.py"]
