"""No module of the product imports itself by way of others.

`lint-imports` says the same of rooms; here a module and the package it lies in are two, so that a package which offers
a name of a module is not what the module imports.
"""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
from product import PACKAGES, product_files


def loop(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules each of which imports another of them, or none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def imports_of_the_product() -> dict[str, set[str]]:
    graph = grimp.build_graph(*(Path(place).name for place in PACKAGES), cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = imports_of_the_product()
    assert len(imports) == len(product_files())
    assert loop(imports) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("hush_common.task", "hush_client.gateway"), ("hush_client.client", "hush_client"), ("hush", "hush")],
)
def test_a_loop_is_noticed(importer: str, imported: str) -> None:
    imports = imports_of_the_product()
    imports[importer].add(imported)
    assert {importer, imported} <= set(loop(imports))
