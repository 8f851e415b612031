"""Exporting: estimates as CSV, and counted reports as CSV or Parquet, in portions so that memory stays the same."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from hush_aggregator.count.tasks import check_round, row_of, stored_task
from hush_aggregator.estimate.result import Result
from hush_aggregator.store.base import StoreReader
from hush_aggregator.store.location import StoreAddress, open_reader
from hush_common.errors import OptionError, StoreError
from hush_common.files import draft_of, sync
from hush_common.task import Task
from hush_common.wire import Report

_PORTION = 16_384


class Exported(NamedTuple):
    """What an export has, and what it cannot have."""

    reports: int
    dropped: dict[int, int]  # reports counted in the rounds whose ids and bodies were dropped by policy, by round


def export_reports(store: StoreAddress, task_id: str, out: Path, round_: int | None) -> Exported:
    """Write the reports of a round, or of all, and return what was written; the file is there whole, or not at all.

    Raises:
        OptionError: the file is there already, or pyarrow is missing for one of Parquet.
        StoreError: the store cannot be read, or the file cannot be written.
        TaskError: no such task or round.
    """
    if out.exists():
        raise OptionError("--out", f"{out} already exists; name a new file, or remove it")
    if out.suffix == ".parquet":
        need_arrow("--out")
    with open_reader(store) as opened:
        task, reports, dropped = reports_of(opened, task_id, round_)
        counted = _Counted(reports)
        try:
            with draft_of(out) as draft:
                with draft.open("wb") as file:
                    file.writelines(FORMATS[out.suffix](task, counted))
                sync(draft)
                draft.replace(out)
        except OSError as error:
            raise StoreError(f"{out}: cannot be written ({error.strerror}); name a directory with room") from error
    return Exported(counted.count, dropped)


def reports_of(store: StoreReader, task_id: str, round_: int | None) -> tuple[Task, Iterator[Report], dict[int, int]]:
    """Return a task, its reports of a round or of all, released or not, and what was dropped as in `Exported`.

    Raises:
        StoreError: the store cannot be read.
        TaskError: no such task or round.
    """
    row = row_of(store, task_id)
    task = stored_task(row.payload)
    if round_ is not None:
        check_round(task, round_)
    rounds = [one for one in store.stored_rounds(task.digest) if round_ in (None, one.round)]
    dropped = {one.round: one.n for one in rounds if one.dropped}
    return task, chain.from_iterable(store.reports(task.digest, one.round) for one in rounds), dropped


def need_arrow(option: str) -> None:
    """Raise an OptionError if Parquet cannot be written."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        message = "Parquet needs pyarrow; run pip install pyarrow, or take CSV"
        raise OptionError(option, message) from None


class _Counted(Iterator[Report]):
    """Reports, and how many of them were taken."""

    def __init__(self, reports: Iterator[Report]) -> None:
        self._reports = reports
        self.count = 0

    def __next__(self) -> Report:
        report = next(self._reports)
        self.count += 1
        return report


def _columns(task: Task) -> list[str]:
    """Round, id, and one column for each integer of a body."""
    return ["round", "id", *(f"body_{place}" for place in range(task.randomizer.width))]


def _csv(task: Task, reports: Iterator[Report]) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_columns(task))
    while portion := [*islice(reports, _PORTION)]:
        writer.writerows([report.round, report.id.hex(), *report.body] for report in portion)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


ESTIMATE_COLUMNS = (
    "task",
    "round",
    "part",
    "reports",
    "estimate",
    "about",
    "intervals",
    "low",
    "high",
    "confidence",
    "final",
)
"""The columns of `estimates_csv`."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def estimates_csv(result: Result) -> str:
    """Return the estimates of a round as lines of CSV without a head: one for each interval of each part.

    Numbers are exact; `intervals` are individual or simultaneous. A part without an interval has one line. In
    a name that a spreadsheet would take for a formula, an apostrophe comes first.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for part in result.parts:
        name = f"'{part.name}" if part.name.startswith(_FORMULA) else part.name
        mean = "" if part.mean is None else repr(part.mean)
        facts = result.task.id, result.round, name, part.n, mean
        last = repr(result.confidence), "yes" if result.final else "no"
        kinds = ("individual", part.intervals), ("simultaneous", part.joint_intervals)
        lines = [(target, kind, *map(repr, ends)) for kind, found in kinds for target, ends in found.items()]
        writer.writerows([*facts, *line, *last] for line in lines or [("", "", "", "")])
    return text.getvalue()


class _Portion(io.RawIOBase):
    """A file that is taken away as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # of what pyarrow hands over
        self._written += data
        return len(data)

    def taken(self) -> bytes:
        written, self._written = bytes(self._written), bytearray()
        return written


def _parquet(task: Task, reports: Iterator[Report]) -> Iterator[bytes]:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    names = _columns(task)
    types = [arrow.uint64(), arrow.binary(16), *[arrow.int64()] * (len(names) - 2)]
    schema = arrow.schema(list(zip(names, types, strict=True)))
    file = _Portion()
    with parquet.ParquetWriter(file, schema) as writer:
        while portion := [*islice(reports, _PORTION)]:
            columns = [[report.round for report in portion], [report.id for report in portion]]
            columns += [[*body] for body in zip(*(report.body for report in portion), strict=True)]
            writer.write_table(arrow.table(dict(zip(names, columns, strict=True)), schema=schema))
            yield file.taken()
    yield file.taken()


FORMATS: Mapping[str, Callable[[Task, Iterator[Report]], Iterator[bytes]]] = {".csv": _csv, ".parquet": _parquet}
"""The portions of a file, by its suffix."""
