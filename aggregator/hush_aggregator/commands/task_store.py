"""`hush task list`, `withdraw`, `take-over` and `forget`: on the store, and a running aggregator does what follows."""

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from hush_aggregator.commands.task_end import Id, JsonOption, StoreOption, say
from hush_common.errors import TaskError
from hush_common.terminal import Column, Row, Table, show

__all__ = ["forget", "list_", "take_over", "withdraw"]


def list_(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the tasks of a store: who gave them, what is to become of them, and who publishes them."""
    from hush_aggregator.store import SqliteReader  # noqa: PLC0415 - it brings numpy, which `check` does without
    from hush_aggregator.task_facts import facts_of  # noqa: PLC0415 - as above

    with SqliteReader(store) as opened:
        facts = [facts_of(opened, row) for row in opened.task_rows()]
    if as_json:
        print(json.dumps({"v": 1, "tasks": facts}, indent=2))
        return
    columns = [Column("task"), Column("digest"), Column("given by"), Column("state"), Column("published by")]
    rows = [
        Row(
            [
                str(fact["task"]),
                _in_two(str(fact["digest"])),
                *(str(fact[name]) for name in ("origin", "state", "owner", "n")),
            ]
        )
        for fact in facts
    ]
    show([Table([*columns, Column("reports", right=True)], rows)])


def _in_two(digest: str) -> str:
    """A digest that a narrow terminal can break."""
    return bytes.fromhex(digest).hex(" ", 16)


def withdraw(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Ask nobody any more: the retained task is cleared. Reports that are under way still count.

    A running aggregator reacts within two seconds, any other when it starts. To ask again, run hush task publish.
    """
    from hush_aggregator import task_changes  # noqa: PLC0415 - as above
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - as above

    with SqliteEditor(store) as opened:
        row = task_changes.withdraw(opened, task)
    say("withdrawn", row, "nobody is asked any more, and what is under way counts", {} if as_json else None)


def take_over(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Publish task and estimate from this store from now on, in place of the one that published them.

    That one yields as soon as it sees the new estimate. Reports that only it has counted are not in this store: devices
    are asked to send again what they have kept.
    """
    from hush_aggregator.claims import TAKE_OVER  # noqa: PLC0415 - as above
    from hush_aggregator.known_tasks import stored_task  # noqa: PLC0415 - as above
    from hush_aggregator.recall_terms import drawn_up, is_recallable  # noqa: PLC0415 - as above
    from hush_aggregator.store import Owner, SqliteEditor  # noqa: PLC0415 - as above
    from hush_aggregator.task_changes import row_of  # noqa: PLC0415 - as above

    now = datetime.now(UTC)

    with SqliteEditor(store) as opened:
        row = row_of(opened, task)
        if row.owner == opened.public_identity:
            raise TaskError("task", f"{row.id!r} is published by this store already, as far as it knows")
        known = stored_task(row.payload)
        if is_recallable(known, row, now):  # first: it is published by whoever owns the task, and forgotten by nobody
            opened.recall([drawn_up(opened, known, now)])
        opened.set_owners([Owner(row.id, row.owner, row.term, TAKE_OVER)])
    say("taken over", row, "its aggregator publishes it as soon as it is connected", {} if as_json else None)


def forget(
    task: Id,
    store: StoreOption,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the reports and tallies of a task for good; its id stays taken, so that nothing counts again.

    The task is closed, and what the broker retains of it is cleared. Backups still have what they have.
    """
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - as above
    from hush_aggregator.task_changes import row_of  # noqa: PLC0415 - as above

    with SqliteEditor(store) as opened:
        row = row_of(opened, task, forgotten=True)
        if not yes:
            typer.confirm(f"Delete all reports of {row.id}, for good?", abort=True, err=True)
        opened.forget(row.id)
    say("forgotten", row, "its reports and tallies are deleted, and its id stays taken", {} if as_json else None)
