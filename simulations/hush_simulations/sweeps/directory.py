"""The directory of a sweep: which sweep it is, a file for each finished cell, and its tables.

`sweep.json` identifies the sweep; another one is refused, and the message names the difference. `cells/` has a file for
each cell, written atomically and with a digest. The process that simulates cells holds `lock`. A cell is finished if
its file is undamaged and has the key of the sweep.
"""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

from hush_common.errors import OptionError
from hush_common.files import FileLock, replace_file
from hush_simulations.sweeps.cell import CellWork, FinishedCell
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.sweep import FORMAT, Sweep, canonical

_CELL = TypeAdapter(FinishedCell)


def encode(made: FinishedCell) -> bytes:
    """Return the content of its file."""
    cell = {
        "key": made.key,
        "seed": made.seed,
        "versions": asdict(made.versions),
        "rows": [row.document() for row in made.rows],
    }
    digest = hashlib.sha256(canonical(cell).encode()).hexdigest()
    return (json.dumps({"cell": cell, "sha256": digest}, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def decode(content: bytes) -> FinishedCell | None:
    """Return the cell in a file, or None if the file is not exactly what `encode` writes."""
    try:
        made = _CELL.validate_python(json.loads(content)["cell"])
        return made if encode(made) == content else None
    except (ValueError, TypeError, KeyError, RecursionError):  # a ValidationError is a ValueError
        return None


_SWEEP, _CELLS, _LOCK = "sweep.json", "cells", "lock"
_OPTION = "--out"

CellState = Literal["made", "missing", "damaged", "of another key"]
"""Of a cell; "of another key" if its file has other inputs."""


class SweepDirectory:
    """The directory of a sweep, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def opened(self, sweep: Sweep, *, resume: bool) -> Iterator[None]:
        """Create it if needed, and lock it for this sweep; raise OptionError if it is locked or of another sweep."""
        with errors_of(self.path):
            (self.path / _CELLS).mkdir(parents=True, exist_ok=True)
            lock = FileLock.take(self.path / _LOCK)
        if lock is None:
            raise OptionError(_OPTION, f"{self.path} is in use: another sweep is running in it; wait, or name another")
        try:
            self._begin(sweep, resume=resume)
            for draft in (self.path / _CELLS).glob("*.part"):  # of a process that was killed
                with suppress(OSError):
                    draft.unlink()
            yield
        finally:
            lock.release()

    def is_busy(self) -> bool:
        """Return whether a process simulates cells now."""
        if not (self.path / _LOCK).exists():
            return False
        lock = FileLock.take(self.path / _LOCK)
        if lock is None:
            return True
        lock.release()
        return False

    def identity(self) -> dict[str, object] | None:
        """Return which sweep it is of, or None; raise OptionError if `sweep.json` is damaged or of another format."""
        file = self.path / _SWEEP
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(_OPTION, f"{file} cannot be read; name another directory") from error
        try:
            found = json.loads(text)
            form, identity = found["format"], found["sweep"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise OptionError(_OPTION, f"{file} is damaged; name another directory, or delete this one") from error
        if form != FORMAT:
            raise OptionError(_OPTION, f"{self.path} is of format {form}, this hush writes {FORMAT}; name another")
        return dict(identity)

    def _begin(self, sweep: Sweep, *, resume: bool) -> None:
        if self.identity() is None:
            with errors_of(self.path):
                replace_file(self.path / _SWEEP, _document(sweep.identity()))
        elif not resume:
            raise OptionError(_OPTION, f"{self.path} has a sweep already; name another directory, or resume it")
        self.check(sweep)

    def check(self, sweep: Sweep) -> None:
        """Raise OptionError, which names what differs, if it is of another sweep."""
        before, now = self.identity() or {}, json.loads(canonical(sweep.identity()))
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if differing:
            raise OptionError(_OPTION, f"{self.path} is of another sweep: {_differences(before, now, differing)}")

    def keep(self, work: CellWork, made: FinishedCell) -> None:
        """Write the file of a cell, or raise OptionError and leave nothing of it."""
        with errors_of(self.path):
            replace_file(self._file(work), encode(made))

    def made(self, work: CellWork) -> FinishedCell | None:
        """Return a cell if it is finished, else None."""
        state, found = self._state(work)
        return found if state == "made" else None

    def states(self, works: Sequence[CellWork]) -> dict[str, int]:
        """Return the number of cells in each state."""
        found = Counter(self._state(work)[0] for work in works)
        return {state: found[state] for state in get_args(CellState) if found[state]}

    def _state(self, work: CellWork) -> tuple[CellState, FinishedCell | None]:
        try:
            content = self._file(work).read_bytes()
        except FileNotFoundError:
            return "missing", None
        except OSError:
            return "damaged", None
        found = decode(content)
        if found is None:
            return "damaged", None
        fits = found.key == work.key and found.seed == work.seed
        return ("made", found) if fits else ("of another key", None)

    def _file(self, work: CellWork) -> Path:
        return self.path / _CELLS / f"{work.number:06d}.json"


def _document(identity: Mapping[str, object]) -> bytes:
    plain = json.loads(canonical(identity))
    return (json.dumps({"format": FORMAT, "sweep": plain}, indent=1, ensure_ascii=False) + "\n").encode()


def _differences(before: Mapping[str, object], now: Mapping[str, object], names: Sequence[str]) -> str:
    shown = [f"{name} is {_shown(before.get(name))} there and {_shown(now.get(name))} here" for name in names]
    return f"{'; '.join(shown)}; name another directory, or ask for what is there"


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    text = canonical(value)
    return text if len(text) <= 60 else "another"  # noqa: PLR2004 - what a line has room for


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn an OSError into an OptionError with a remedy."""
    try:
        yield
    except FileExistsError:
        raise OptionError(_OPTION, f"{path} is a file; name a directory") from None
    except OSError as error:
        remedy = "make room or name another; the cells that are made stay, and the same command goes on"
        raise OptionError(_OPTION, f"{path} cannot be written ({error.strerror or error}); {remedy}") from error


def csv_text(result: SweepResult) -> str:
    """Return the rows as CSV with a header; unknown values are empty, numbers have all their digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.column_names())
    writer.writerows(zip(*result.columns().values(), strict=True))
    return out.getvalue()


def write_csv(result: SweepResult, path: Path) -> Path:
    """Write the rows as CSV; raise OptionError if the file cannot be written."""
    with errors_of(path):
        replace_file(path, csv_text(result).encode())
    return path


def check_parquet() -> None:
    """Raise OptionError if Parquet cannot be written, before a long sweep starts."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise OptionError(
            "--parquet", "needs pyarrow; run pip install pyarrow, or leave it out: CSV is written"
        ) from None


def write_parquet(result: SweepResult, path: Path) -> Path:
    """Write the rows as Parquet, as `write_csv`. An axis whose values have several types becomes text."""
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
