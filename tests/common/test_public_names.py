"""A module that lists its public names lists them sorted, and has them."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import hush_client
from hush_client import Client, Gateway, SyncClient

PACKAGES = ["hush", "hush_common", "hush_client", "hush_aggregator", "hush_simulations"]


def modules() -> list[str]:
    found = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return found


def test_the_client_offers_few_names_sorted_and_typed() -> None:
    assert len(hush_client.__all__) <= 10
    assert hush_client.__all__ == sorted(hush_client.__all__)
    assert {*hush_client.__all__, "__doc__"} <= set(dir(hush_client))
    assert (Path(hush_client.__file__).parent / "py.typed").exists()


def test_the_client_loads_no_third_party_until_it_is_used() -> None:
    probe = "import sys; from hush_client import Client, Gateway, Policy, Receipt, SyncClient; "
    probe += "sys.exit(' '.join({'aiomqtt', 'paho', 'pydantic', 'typer', 'numpy'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def methods(kind: type) -> list[str]:
    """Its public names that can be called: a property has no parameters."""
    return [name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]


def test_the_blocking_client_offers_what_the_other_one_does() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(SyncClient) == names(Client)
    for name in [*methods(Client), "__init__"]:
        one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (Client, SyncClient))
        assert list(one.values()) == list(other.values()), name


def test_a_client_waits_as_long_as_its_gateway_unless_it_is_told() -> None:
    for name in methods(Client):
        one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (Client, Gateway))
        assert {k: v.default for k, v in one.items()} == {k: other[k].default for k in one}, name
    waiting = (Gateway.report, Gateway.report_many, Gateway.task, Gateway.flush)
    assert {inspect.signature(method).parameters["timeout"].default for method in waiting} == {30.0}


@pytest.mark.parametrize("name", modules())
def test_all_is_sorted_and_true(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert len(set(names)) == len(names)
    assert [n for n in names if not hasattr(module, n)] == []
