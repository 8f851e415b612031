"""The names that people import: few, where they say, and nothing heavy with them."""

import importlib
import inspect
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
