"""Imports on first use (PEP 562), and the extra to install where a library is missing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType

from hush_common.errors import MissingExtraError


def _import(module: str, _name: str) -> ModuleType:
    return import_module(module)


def lazy_names(
    names: dict[str, object], homes: Mapping[str, str], load: Callable[[str, str], ModuleType] = _import
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Bind them under `if not TYPE_CHECKING`: with a `__getattr__` a type checker accepts any name of the package.

    Args:
        names: `globals()` of the package, which caches loaded names.
        homes: for each lazy name the module that defines it.
        load: imports a module, given its name and the full name that is requested.
    """

    def getter(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        found: object = getattr(load(homes[name], f"{names['__name__']}.{name}"), name)
        names[name] = found
        return found

    return getter, lambda: sorted({*names, *homes})


_EXTRAS = {
    "hush": "command",
    "hush_aggregator": "aggregator",
    "hush_simulations": "simulations",
    "hush_conform": "simulations",
    "hush_poll": "simulations",
    "hush_tour": "simulations",
    "hush_attacks": "simulations",
}


def load(module: str, what: str) -> ModuleType:
    """Import a module of hush; MissingExtraError if a library that it needs is in an extra that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(module.partition(".")[0])
        if extra is None or (error.name or "").startswith("hush"):
            raise
        raise MissingExtraError(
            f"{what} needs {error.name}, which comes with hush-ldp[{extra}]; "
            f"in a clone of hush, run: pip install '.[{extra}]'"
        ) from error
