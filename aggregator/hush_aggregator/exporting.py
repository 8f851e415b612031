"""Exporting: the counted reports of a task to CSV or Parquet, in portions, so that memory stays the same."""

import csv
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import chain, islice
from pathlib import Path

from hush_aggregator.known_tasks import stored_task
from hush_aggregator.store import SqliteReader
from hush_common.errors import OptionError, StoreError, TaskError
from hush_common.private_file import make_private_file
from hush_common.report import Report
from hush_common.task import Task

__all__ = ["export_reports"]

_PORTION = 16_384


def export_reports(store: Path, task_id: str, out: Path, round_: int | None) -> int:
    """Write the reports of a round, or of all, and return how many there are; the file is there whole, or not at all.

    Raises:
        OptionError: the file is there already, or pyarrow is missing for one of Parquet.
        StoreError: the store cannot be read, or the file cannot be written.
        TaskError: no such task or round.
    """
    if out.exists():
        raise OptionError("--out", f"{out} is there already; name a new file, or remove it")
    part = out.with_name(f"{out.name}.part")
    write = _write_csv if out.suffix == ".csv" else _write_parquet
    with SqliteReader(store) as opened:
        payload = opened.task(task_id)
        if payload is None:
            raise TaskError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
        task = stored_task(payload)
        if round_ is not None and not 0 <= round_ < task.rounds:
            raise TaskError("round", f"{round_} is not one of the {task.rounds} rounds of {task.id!r}")
        rounds = range(opened.latest_round(task.digest) + 1) if round_ is None else [round_]
        reports = chain.from_iterable(opened.reports(task.digest, number) for number in rounds)
        try:
            make_private_file(part)
            count = write(part, task, reports)
            part.replace(out)
        except OSError as error:
            raise StoreError(f"{out}: cannot be written ({error.strerror}); name a directory with room") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return count


def _columns(task: Task) -> list[str]:
    """Round, id, and one column for each integer of a body."""
    return ["round", "id", *(f"body_{place}" for place in range(task.randomizer.width))]


def _write_csv(part: Path, task: Task, reports: Iterator[Report]) -> int:
    count = 0
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_columns(task))
        for report in reports:
            writer.writerow([report.round, report.id.hex(), *report.body])
            count += 1
    return count


def _write_parquet(part: Path, task: Task, reports: Iterator[Report]) -> int:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise OptionError("--out", "a .parquet file needs pyarrow; run pip install pyarrow, or name a .csv") from None
    names = _columns(task)
    types = [arrow.uint64(), arrow.binary(16), *[arrow.int64()] * (len(names) - 2)]
    schema = arrow.schema(list(zip(names, types, strict=True)))
    count = 0
    with parquet.ParquetWriter(part, schema) as writer:
        while portion := [*islice(reports, _PORTION)]:
            columns = [[report.round for report in portion], [report.id for report in portion]]
            columns += [[*body] for body in zip(*(report.body for report in portion), strict=True)]
            writer.write_table(arrow.table(dict(zip(names, columns, strict=True)), schema=schema))
            count += len(portion)
    return count
