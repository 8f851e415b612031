"""A table from a Parquet file, where pyarrow is installed."""

from importlib import import_module
from pathlib import Path

from hush_common.errors import OptionError

__all__ = ["PARQUET", "parquet_table"]

PARQUET = (".parquet", ".pq")
"""How the name of a Parquet file ends."""

_REMEDY = "pass the path of a CSV or Parquet file, or a data frame"


def parquet_table(data: str | Path) -> object:
    """The table of a Parquet file, for `python_data`.

    Raises:
        OptionError: it is no Parquet file, cannot be read, or pyarrow is not there.
    """
    path = Path(data)
    if path.suffix.lower() not in PARQUET:
        raise OptionError("data", f"is text or a path, and names no .csv or .parquet file; {_REMEDY}")
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        raise OptionError("data", f"{path} cannot be read ({error.strerror}); {_REMEDY}") from None


def _read(path: Path, file: object) -> object:
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError:
        raise OptionError("data", f"{path} needs pyarrow; run pip install pyarrow, or pass a data frame") from None
    try:
        return reader.read_table(file)
    except (ValueError, OSError):  # pyarrow.ArrowInvalid is a ValueError; its message may show bytes of the file
        raise OptionError("data", f"{path} is no Parquet file; {_REMEDY}") from None
