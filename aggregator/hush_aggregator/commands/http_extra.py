"""What HTTP stands on comes with an extra of its own: what to install where it is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from hush_common.errors import MissingExtraError

__all__ = ["http_extra"]


@contextmanager
def http_extra(what: str) -> Iterator[None]:
    """Within it, imports of HTTP that fail name what to install.

    Raises:
        MissingExtraError: something is missing, for `what`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hush"):
            raise
        raise MissingExtraError(
            f"{what} needs {error.name}, which comes with hush-ldp[service]; "
            "in a clone of hush, run: pip install '.[service]'"
        ) from error
