"""Write the rows of a sweep as CSV and as Parquet, atomically."""

import csv
import io
from importlib import import_module
from pathlib import Path

from hush_common.errors import OptionError
from hush_common.files import replace_file
from hush_simulations.sweeps.directory import errors_of
from hush_simulations.sweeps.result import SweepResult


def csv_text(result: SweepResult) -> str:
    """Return the rows as CSV with a header; unknown values are empty, numbers have all their digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.column_names())
    writer.writerows(zip(*result.columns().values(), strict=True))
    return out.getvalue()


def write_csv(result: SweepResult, path: Path) -> Path:
    """Write the rows as CSV.

    Raises:
        OptionError: the file cannot be written.
    """
    with errors_of(path):
        replace_file(path, csv_text(result).encode())
    return path


def check_parquet() -> None:
    """Check that Parquet can be written, before a long sweep starts.

    Raises:
        OptionError: pyarrow is not installed.
    """
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise OptionError(
            "--parquet", "needs pyarrow; run pip install pyarrow, or leave it out: CSV is written"
        ) from None


def write_parquet(result: SweepResult, path: Path) -> Path:
    """Write the rows as Parquet. An axis whose values have several types becomes text.

    Raises:
        OptionError: pyarrow is not installed, or the file cannot be written.
    """
    check_parquet()
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    columns = result.columns()
    for name, values in result.axes.items():
        if name in columns and len({type(one) for one in values}) > 1:
            columns[name] = [str(one) for one in columns[name]]
    out = io.BytesIO()
    parquet.write_table(arrow.table(columns), out)
    with errors_of(path):
        replace_file(path, out.getvalue())
    return path
