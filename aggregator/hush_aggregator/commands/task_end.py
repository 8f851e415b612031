"""`hush task close` and `hush task recall`: they write the store, and a running aggregator does what follows."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush_common.errors import OptionError, TaskError

if TYPE_CHECKING:
    from hush_aggregator.store import SqliteEditor, TaskRow
    from hush_common.task import Task

__all__ = ["Id", "StoreOption", "close", "recall"]

Id = Annotated[str, typer.Argument(metavar="TASK", help="Id of the task.", show_default=False)]
StoreOption = Annotated[
    Path, typer.Option(envvar="HUSH_STORE", help="The store of its aggregator.", show_default=False)
]


def close(
    task: Id,
    store: StoreOption,
    round_: Annotated[int | None, typer.Option("--round", help="Only this round, from 0; left out: the task.")] = None,
) -> None:
    """Close a task, or one round of it, for good: nothing more is counted, and its estimate is final.

    A running aggregator reacts within two seconds: the estimate says `final`, and a closed task is withdrawn.
    """
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - it brings numpy, which `check` does without

    with SqliteEditor(store) as opened:
        row, known = _found(opened, task)
        if round_ is not None and not 0 <= round_ < known.rounds:
            raise OptionError("round", f"{round_} is not one of the {known.rounds} rounds of {row.id!r}")
        opened.close_task(row.id, round_)
    which = row.id if round_ is None else f"round {round_} of {row.id}"
    print(f"closed: {which}; nothing more is counted, whatever still comes")


def recall(task: Id, store: StoreOption) -> None:
    """Ask all devices to send again what they keep of a task. What is counted already counts once.

    For when reports may have been lost that the broker had taken. A running aggregator publishes it within two seconds,
    any other when it starts.
    """
    from hush_aggregator.recall_terms import drawn_up, is_recallable  # noqa: PLC0415 - as above
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    with SqliteEditor(store) as opened:
        row, known = _found(opened, task)
        if row.owner not in ("", opened.public_identity):
            raise TaskError(
                "task", f"{row.id!r} is another store's, {row.owner}; let the aggregator of that one recall"
            )
        if not is_recallable(known, row, now):
            raise TaskError(
                "task", f"{row.id!r} is closed or not open yet: no report of it that counts can be recalled"
            )
        made = drawn_up(opened, known, now)
        opened.recall([made])
    print(
        f"recalled: {row.id}; devices send what they have kept again, over {made.recall.spread} s once they hear of it"
    )


def _found(store: "SqliteEditor", task_id: str) -> "tuple[TaskRow, Task]":
    from hush_aggregator.known_tasks import stored_task  # noqa: PLC0415 - as above

    for row in store.task_rows():
        if row.id == task_id and row.payload:
            return row, stored_task(row.payload)
    raise TaskError("task", f"{task_id[:80]!r} is not in this store; name one that is counted there")
