"""Parts of hush that a device does not need: what to install where one is missing."""

import importlib
from types import ModuleType

from hush_common.errors import MissingExtraError

__all__ = ["load"]

_EXTRAS = {"hush": "command", "hush_aggregator": "aggregator", "hush_simulations": "simulations"}


def load(module: str, what: str) -> ModuleType:
    """Import a module of hush.

    Args:
        module: its full name.
        what: what needs it, for the message.

    Raises:
        MissingExtraError: what it stands on comes with an extra that is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(module.partition(".")[0])
        if extra is None or (error.name or "").startswith("hush"):
            raise
        raise MissingExtraError(
            f"{what} needs {error.name}, which comes with hush-ldp[{extra}]; "
            f"in a clone of hush, run: pip install '.[{extra}]'"
        ) from error
