"""`hush export`: the counted reports of a task as a table."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hush_aggregator.commands.task import Id, JsonOption, StoreOption
from hush_common.errors import OptionError, printable

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def export(
    task: Id,
    store: StoreOption,
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet; it must not be there yet.")],
    round_: Annotated[int | None, typer.Option("--round", help="Only this round, from 0; left out: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the counted reports of a task to a file, whether its aggregator runs or not.

    A row for each report: round, its random id, and the integers of its body, as devices sent them. There is neither a
    sender nor a time: the store has none. Rows are in the order of their ids.
    """
    from hush_aggregator.exporting import export_reports  # noqa: PLC0415 - --help must not wait for numpy

    if out.suffix not in (".csv", ".parquet"):
        raise OptionError("--out", "ends in neither .csv nor .parquet; name such a file")
    count = export_reports(store, task, out, round_)
    if as_json:
        print(json.dumps({"v": 1, "task": task, "file": str(out), "reports": count}))
    else:
        print(printable(f"wrote {out}: {count} reports"))
