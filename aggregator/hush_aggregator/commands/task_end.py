"""`hush task close` and `hush task recall`: they write the store, and a running aggregator does what follows."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush_common.errors import TaskError

if TYPE_CHECKING:
    from hush_aggregator.store import TaskRow

__all__ = ["Id", "JsonOption", "StoreOption", "close", "recall", "say"]

Id = Annotated[str, typer.Argument(metavar="TASK", help="Id of the task.", show_default=False)]
StoreOption = Annotated[
    Path, typer.Option(envvar="HUSH_STORE", help="The store of its aggregator.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def close(
    task: Id,
    store: StoreOption,
    round_: Annotated[int | None, typer.Option("--round", help="Only this round, from 0; left out: the task.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Close a task, or one round of it, for good: nothing more is counted, and its estimate is final.

    A running aggregator reacts within two seconds: the estimate says `final`, and a closed task is withdrawn.
    """
    from hush_aggregator import task_changes  # noqa: PLC0415 - it brings numpy, which `check` does without
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - as above

    with SqliteEditor(store) as opened:
        row = task_changes.close(opened, task, round_)
    which, facts = (row.id, {}) if round_ is None else (f"round {round_} of {row.id}", {"round": round_})
    say("closed", row, "nothing more is counted, whatever still comes", facts if as_json else None, which)


def recall(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Ask all devices to send again what they keep of a task. What is counted already counts once.

    For when reports may have been lost that the broker had taken. A running aggregator publishes it within two seconds,
    any other when it starts.
    """
    from hush_aggregator.known_tasks import stored_task  # noqa: PLC0415 - as above
    from hush_aggregator.recall_terms import drawn_up, is_recallable  # noqa: PLC0415 - as above
    from hush_aggregator.store import SqliteEditor  # noqa: PLC0415 - as above
    from hush_aggregator.task_changes import row_of  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    with SqliteEditor(store) as opened:
        row = row_of(opened, task)
        known = stored_task(row.payload)
        if row.owner not in ("", opened.public_identity):
            raise TaskError(
                "task", f"{row.id!r} is another store's, {row.owner}; let the aggregator of that one recall"
            )
        made = drawn_up(opened, known, now)
        if not is_recallable(known, row, now) or not opened.recall([made]):
            raise TaskError(
                "task", f"{row.id!r} is closed or not open yet: no report of it that counts can be recalled"
            )
    over = made.recall.spread
    follows = f"devices send what they have kept again, over {over} s once they hear of it"
    say("recalled", row, follows, {"over": over} if as_json else None)


def say(done: str, row: "TaskRow", follows: str, facts: Mapping[str, int] | None, which: str = "") -> None:
    """Tell what was done with a task.

    Args:
        done: what.
        row: with which.
        follows: what comes of it.
        facts: printed as JSON, if there are any to print.
        which: what to call it, where its id is not enough.
    """
    if facts is None:
        print(f"{done}: {which or row.id}; {follows}")
    else:
        status = {"status": done.replace(" ", "_")}
        print(json.dumps({"v": 1, "task": row.id, "digest": row.digest.hex(), **status, **facts}))
