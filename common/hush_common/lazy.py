"""Names of a package that are loaded when they are first used (PEP 562): `import` then costs what is used of it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType

__all__ = ["lazy_names"]


def _import(module: str, _name: str) -> ModuleType:
    return import_module(module)


def lazy_names(
    names: dict[str, object], homes: Mapping[str, str], load: Callable[[str, str], ModuleType] = _import
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Bind them under `if not TYPE_CHECKING`: a type checker that sees a `__getattr__` takes any name for one of the
    package.

    Args:
        names: `globals()` of the package; a name that was loaded once is kept there.
        homes: for each lazy name the module that defines it.
        load: what imports a module, given its name and the full name that is asked of it.
    """

    def getter(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        found: object = getattr(load(homes[name], f"{names['__name__']}.{name}"), name)
        names[name] = found  # the next look-up does not come here
        return found

    return getter, lambda: sorted({*names, *homes})
