"""`hush store`: back up, restore, compact, check, copy."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from hush_aggregator.commands.options import JsonOption, StoreOption
from hush_common.errors import StoreError, printable
from hush_common.options import Argument, Commands, Option
from hush_common.output import print_done
from hush_common.terminal import note

app: Commands = Commands(
    no_args_is_help=True,
    help="Back up, restore, check, copy and compact the store of an aggregator.",
)

_EVERY_S = 5.0
_File = Annotated[Path, Argument(help="The backup.", show_default=False)]


@app.command()
def backup(file: _File, store: StoreOption, as_json: JsonOption = False) -> None:
    """Copy a store, as it is at one moment, into a file that is not there yet; its aggregator may run.

    The copy is checked: what an estimate is made of is as it was written.
    """
    from hush_aggregator.store.disk import note_backup  # noqa: PLC0415 - as below
    from hush_aggregator.store.sqlite import back_up  # noqa: PLC0415 - --help must not wait for numpy

    path = _file_of(store, "back up a database with pg_dump or pg_basebackup")
    file = _file_of(str(file), "a backup is a file; name one")
    reports = back_up(path, file)
    try:
        note_backup(path, datetime.now(UTC))
    except OSError as error:
        remedy = "hush doctor and the metrics do not know of this backup; run this as the user of the service"
        note(f"WARNING: no mark could be left next to {store} ({error.strerror}): {remedy}")
    _say(as_json, "backed up", file, reports)


@app.command()
def restore(
    file: _File,
    store: StoreOption,
    replace: Annotated[bool, Option("--replace", help="Put it in place of a store that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup back as the store; no aggregator may use it meanwhile.

    The aggregator that starts with it asks devices to send again what they have kept: what was counted since the backup
    counts again, and once. What no device has kept any more is gone.
    """
    from hush_aggregator.store.sqlite import put_back  # noqa: PLC0415 - as above

    path = _file_of(store, "restore a database with pg_restore, or with PostgreSQL's own recovery")
    file = _file_of(str(file), "a backup is a file; name one")
    reports = put_back(file, path, replace=replace)
    _say(as_json, "restored", path, reports)


@app.command()
def compact(store: StoreOption, as_json: JsonOption = False) -> None:
    """Make the file of a store as small as it can be; no aggregator may use it meanwhile.

    A store grows to about 45 bytes a report while it counts, and reuses that room. This takes a few seconds for each
    million reports, and the room of a second store while it runs.
    """
    from hush_aggregator.store.sqlite import compact  # noqa: PLC0415 - as above

    before, after = compact(_file_of(store, "PostgreSQL does this itself (autovacuum)"))
    if as_json:
        print_done(json.dumps({"v": 1, "status": "compacted", "file": str(store), "before": before, "after": after}))
    else:
        print_done(printable(f"compacted: {store}, {before} bytes before, {after} bytes now"))


@app.command()
def check(store: StoreOption, as_json: JsonOption = False) -> None:
    """Compare every tally with the reports that are stored; an aggregator may count meanwhile.

    The exit code is 1 if one is not that of its reports.
    """
    from hush_aggregator.ops.copy import check_reports, count_dropped  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    reports, found = check_reports(parse_store(store), _progress("checked"))
    rounds, dropped = count_dropped(parse_store(store))
    if as_json:
        status = "damaged" if found else "ok"
        facts = {"status": status, "reports": reports, "dropped": dropped}
        print(json.dumps({"v": 1, **facts, "differences": [one._asdict() for one in found]}))
    elif not found:
        print(printable(f"checked: {reports} reports, and every tally is theirs"))
    if dropped and not as_json:
        which = "1 round" if rounds == 1 else f"{rounds} rounds"
        print(f"not checked: {dropped} reports of {which}, dropped by the retention")
    for one in found if not as_json else ():
        what = f"{one.counted} reports counted, {one.stored} stored; {one.what}"
        print(printable(f"round {one.round} of {one.task}: {what}"))
    if found:
        raise StoreError(f"{len(found)} tallies are not those of their reports; restore a backup")


@app.command()
def copy(
    source: Annotated[str, Argument(help="The store to copy: a file, or postgresql://….")],
    target: Annotated[str, Argument(help="Where no store is: a file, or postgresql://….")],
    as_json: JsonOption = False,
) -> None:
    """Copy a store into another place, between SQLite and PostgreSQL too; no aggregator may use it.

    The copy goes on in place of the store: never run both. Its aggregator asks devices to send again what they keep.
    """
    from hush_aggregator.ops.copy import copy_store  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    there = parse_store(target)
    reports = copy_store(parse_store(source), there, _progress("copied"))
    if as_json:
        print_done(json.dumps({"v": 1, "status": "copied", "store": str(there), "reports": reports}))
    else:
        print_done(printable(f"copied: {there}, {reports} reports"))


def _progress(what: str) -> Callable[[int], None]:
    """Return a function that says every few seconds how far long work is."""
    last = time.monotonic()

    def tell(reports: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY_S:
            last = time.monotonic()
            note(f"{reports} reports {what}")

    return tell


def _file_of(store: str, instead: str) -> Path:
    from hush_aggregator.store.location import parse_store, store_file  # noqa: PLC0415 - as above

    return store_file(parse_store(store), instead)


def _say(as_json: bool, done: str, path: Path, reports: int) -> None:
    if as_json:
        print_done(json.dumps({"v": 1, "status": done.replace(" ", "_"), "file": str(path), "reports": reports}))
    else:
        print_done(printable(f"{done}: {path}, {reports} reports"))
