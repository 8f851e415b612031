"""`hush store backup` and `hush store restore`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hush_aggregator.commands.task import JsonOption, StoreOption
from hush_common.errors import printable

app: typer.Typer = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Back up the store of an aggregator, and put it back.",
)

_File = Annotated[Path, typer.Argument(help="The backup.", show_default=False)]


@app.command()
def backup(file: _File, store: StoreOption, as_json: JsonOption = False) -> None:
    """Copy a store, as it is at one moment, into a file that is not there yet; its aggregator may run.

    The copy is checked: what an estimate is made of is as it was written.
    """
    from hush_aggregator.store.sqlite import back_up  # noqa: PLC0415 - --help must not wait for numpy

    reports = back_up(store, file)
    _say(as_json, "backed up", file, reports)


@app.command()
def restore(
    file: _File,
    store: StoreOption,
    replace: Annotated[bool, typer.Option("--replace", help="Put it in place of a store that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup back as the store; no aggregator may use it meanwhile.

    The aggregator that starts with it asks devices to send again what they have kept: what was counted since the backup
    counts again, and once. What no device has kept any more is gone.
    """
    from hush_aggregator.store.sqlite import put_back  # noqa: PLC0415 - as above

    reports = put_back(file, store, replace=replace)
    _say(as_json, "restored", store, reports)


def _say(as_json: bool, done: str, path: Path, reports: int) -> None:
    if as_json:
        print(json.dumps({"v": 1, "status": done.replace(" ", "_"), "file": str(path), "reports": reports}))
    else:
        print(printable(f"{done}: {path}, {reports} reports"))
