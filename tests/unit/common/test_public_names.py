"""Every module says what it offers, sorted, and offers what it says."""

import importlib
import pkgutil

import pytest

PACKAGES = ["hush_common", "hush_client", "hush_aggregator", "hush_simulations"]


def modules() -> list[str]:
    found = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return found


@pytest.mark.parametrize("name", modules())
def test_all_is_sorted_and_true(name: str) -> None:
    module = importlib.import_module(name)
    names = module.__all__
    assert len(set(names)) == len(names)
    assert [n for n in names if not hasattr(module, n)] == []
