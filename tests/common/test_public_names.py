"""The names that people import: few, where they say, and nothing heavy with them."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import hush
import hush_client
from hush import HushError
from hush_client import Client, Gateway, SyncClient

PACKAGES = ["hush", "hush_common", "hush_client", "hush_aggregator", "hush_simulations"]
EXTRA = "hush-ldp[{0}]"
ROOT = Path(__file__).parents[2]


def python(*arguments: str, code: int = 0) -> str:
    """What that Python program prints; it must end with this code."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return (done.stdout or done.stderr).strip()


@pytest.mark.medium
@pytest.mark.face
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_each_public_name_once_and_its_types(name: str) -> None:
    package = importlib.import_module(name)
    names = getattr(package, "__all__", [])
    assert len(set(names)) == len(names)
    assert {*names} <= {*dir(package)}
    assert [n for n in names if not hasattr(package, n)] == []
    assert (Path(package.__path__[0]) / "py.typed").exists()


def test_hush_has_the_names_of_the_client_and_no_other() -> None:
    assert hush.Client is Client
    assert len(hush_client.__all__) <= 10
    assert hush_client.__all__ == sorted(hush_client.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        hush.nothing  # type: ignore[attr-defined]  # noqa: B018 - mypy knows it too


def methods(kind: type) -> list[str]:
    """Its public names that can be called: a property has no parameters."""
    return [name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]


def test_the_blocking_client_has_the_methods_of_the_other() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(SyncClient) == names(Client)
    for name in [*methods(Client), "__init__"]:
        one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (Client, SyncClient))
        assert list(one.values()) == list(other.values()), name


def test_a_client_waits_as_long_as_its_gateway() -> None:
    for name in methods(Client):
        one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (Client, Gateway))
        assert {k: v.default for k, v in one.items()} == {k: other[k].default for k in one}, name
    waiting = (Gateway.report, Gateway.report_many, Gateway.task, Gateway.flush)
    assert {inspect.signature(method).parameters["timeout"].default for method in waiting} == {30.0}


@pytest.mark.medium
@pytest.mark.face
def test_a_device_loads_nothing_heavy_until_it_is_used() -> None:
    heavy = "{'numpy', 'typer', 'aiomqtt', 'paho', 'pydantic', 'matplotlib', 'hush_aggregator', 'hush_simulations'}"
    used = "hush.Client, hush.SyncClient, hush.HushError, dir(hush)"
    clients = "from hush_client import Client, Gateway, Policy, Receipt, SyncClient"
    assert python("-c", f"import sys, hush; {used}; {clients}; print(sorted({heavy} & set(sys.modules)))") == "[]"
    assert python("-c", "import sys, hush; hush.SCENARIOS['heights']; print('numpy' in sys.modules)") == "True"


@pytest.mark.medium
@pytest.mark.face
def test_the_version_is_that_of_the_installation() -> None:
    assert hush.__version__ == version("hush-ldp")
    assert python("-m", "hush", "--version") == f"hush {hush.__version__}"


@pytest.mark.medium
@pytest.mark.face
@pytest.mark.parametrize(
    "program", ["from hush.__main__ import main; main()", "import runpy; runpy.run_module('hush', run_name='__main__')"]
)
def test_the_command_without_typer_names_its_extra_in_one_line(program: str) -> None:
    shown = python("-c", f"import sys; sys.modules['typer'] = None; {program}", code=1)
    assert shown.startswith("hush: ")
    assert "\n" not in shown
    assert EXTRA.format("command") in shown


@pytest.mark.medium
@pytest.mark.face
def test_a_name_whose_extra_is_missing_names_the_extra() -> None:
    probe = "import sys; sys.modules['numpy'] = None\ntry: from hush import Scenario\nexcept ImportError as e: print(e)"
    shown = python("-c", probe)
    assert "hush.Scenario" in shown
    assert EXTRA.format("simulations") in shown
    assert issubclass(hush.MissingExtraError, HushError)


def modules() -> dict[str, ast.Module]:
    """The product, parsed, by the names of its modules."""
    found = {}
    for folder in ("common", "client", "aggregator", "simulations", "docs/tour", "docs/attacks"):
        for path in sorted((ROOT / folder).glob("hush*/**/*.py")):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


BY_NAME = ("hush.", "hush_common.lazy", "hush_attacks.catalogue")
"""Modules that may import modules of hush by name: tables of commands and attacks. Packages name their public names."""


def imported_by_name(module: ast.Module) -> set[str]:
    """Names of hush in a module that can import by name, which no contract of imports sees."""
    nodes = list(ast.walk(module))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "hush_common.lazy" for node in nodes)
    if not lazy and not names & {"import_module", "__import__"}:
        return set()
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.fullmatch(r"hush(_[a-z]+)?\.[a-z_.]*", text)}


def test_modules_of_hush_are_imported_by_name_only_where_tables_name_them() -> None:
    found = {
        name: texts
        for name, module in modules().items()
        if not name.startswith(BY_NAME) and not name.endswith("__init__") and (texts := imported_by_name(module))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        'import_module("hush_simulations.display.shown")',
        'importlib.import_module(f"hush_simulations.{name}")',
        'names = ("hush_common.task",)\nfound = list(map(import_module, names))',
        'from hush_common.lazy import load\nload("hush_client.client", "it")',
    ],
)
def test_an_import_by_name_is_found(code: str) -> None:
    assert imported_by_name(ast.parse(code))
