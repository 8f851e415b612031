"""Every module says what it offers, sorted, and offers what it says."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import hush_client

PACKAGES = ["hush_common", "hush_client", "hush_aggregator", "hush_simulations"]


def modules() -> list[str]:
    found = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return found


def test_the_client_offers_few_names_sorted_and_typed() -> None:
    assert len(hush_client.__all__) <= 10
    assert hush_client.__all__ == sorted(hush_client.__all__)
    assert (Path(hush_client.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", modules())
def test_all_is_sorted_and_true(name: str) -> None:
    module = importlib.import_module(name)
    names = module.__all__
    assert len(set(names)) == len(names)
    assert [n for n in names if not hasattr(module, n)] == []
