"""`hush task`: explain and check a task, and publish it."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush_aggregator.commands.options import BrokerOption, Id, JsonOption, StoreOption
from hush_aggregator.publish.explain import blocks, meaning, warnings
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.options import Argument, Commands, Login, Option
from hush_common.output import print_done, print_json
from hush_common.task import Task, digest_of, match_published, read_task
from hush_common.terminal import Column, Row, Table, note, show
from hush_common.topics import task_topic

if TYPE_CHECKING:
    from hush_aggregator.delivery.session import Broker
    from hush_aggregator.store import TaskRow


def close(
    task: Id,
    store: StoreOption,
    round_: Annotated[int | None, Option("--round", help="Only this round, from 0; left out: the task.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Close a task, or one round of it, permanently: nothing more is counted, and its estimate is final.

    A running aggregator reacts within two seconds: the estimate says `final`, and a closed task is withdrawn.
    """
    from hush_aggregator.count import tasks  # noqa: PLC0415 - it brings numpy, which `check` does without
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    with open_editor(parse_store(store)) as opened:
        row = tasks.close(opened, task, round_)
    which, facts = (row.id, {}) if round_ is None else (f"round {round_} of {row.id}", {"round": round_})
    say("closed", row, "nothing more is counted, whatever still comes", facts if as_json else None, which)


def recall(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Ask all devices to send again what they keep of a task. What is counted already counts once.

    For when reports may have been lost that the broker had taken. A running aggregator publishes it within two seconds,
    any other when it starts.
    """
    from hush_aggregator.count.tasks import row_of, stored_task  # noqa: PLC0415 - as above
    from hush_aggregator.delivery.recalls import is_recallable, new_recall  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    with open_editor(parse_store(store)) as opened:
        row = row_of(opened, task)
        known = stored_task(row.payload)
        if row.owner not in ("", opened.public_identity):
            raise TaskError(
                "task", f"{row.id!r} is another store's, {row.owner}; let the aggregator of that one recall"
            )
        made = new_recall(opened, known, now)
        if not is_recallable(known, row, now) or not opened.recall([made]):
            raise TaskError(
                "task", f"{row.id!r} is closed or not open yet: no report of it that counts can be recalled"
            )
    over = made.recall.spread
    follows = f"devices send what they have kept again, over {over} s once they hear of it"
    say("recalled", row, follows, {"over": over} if as_json else None)


def say(done: str, row: "TaskRow", follows: str, facts: Mapping[str, int] | None, which: str = "") -> None:
    """Tell what was done with a task."""
    if facts is None:
        print_done(f"{done}: {which or row.id}; {follows}")
    else:
        status = {"status": done.replace(" ", "_")}
        print_done(json.dumps({"v": 1, "task": row.id, "digest": row.digest.hex(), **status, **facts}))


def list_(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the tasks of a store: their origin, state and owner."""
    from hush_aggregator.count.tasks import facts_of  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import open_reader, parse_store  # noqa: PLC0415 - it brings numpy, which `check` does without

    with open_reader(parse_store(store)) as opened:
        facts = [facts_of(opened, row) for row in opened.task_rows()]
    if as_json:
        print_json({"v": 1, "tasks": facts})
        return
    columns = [Column("task"), Column("digest"), Column("given by"), Column("state"), Column("published by")]
    rows = [Row([str(fact[name]) for name in ("task", "digest", "origin", "state", "owner", "n")]) for fact in facts]
    show([Table([*columns, Column("reports", right=True)], rows)])


def withdraw(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Ask nobody any more: the retained task is cleared. Reports that are under way still count.

    A running aggregator reacts within two seconds, any other when it starts. To ask again, run hush task publish.
    """
    from hush_aggregator.count import tasks  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    with open_editor(parse_store(store)) as opened:
        row = tasks.withdraw(opened, task)
    say("withdrawn", row, "devices no longer answer it; reports on their way still count", {} if as_json else None)


def take_over(task: Id, store: StoreOption, as_json: JsonOption = False) -> None:
    """Publish task and estimate from this store from now on, in place of the one that published them.

    That one yields as soon as it sees the new estimate. Reports that only it has counted are not in this store: devices
    are asked to send again what they have kept.
    """
    from hush_aggregator.count.tasks import row_of, stored_task  # noqa: PLC0415 - as above
    from hush_aggregator.delivery.ownership import TAKE_OVER  # noqa: PLC0415 - as above
    from hush_aggregator.delivery.recalls import is_recallable, new_recall  # noqa: PLC0415 - as above
    from hush_aggregator.store import Owner  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    now = datetime.now(UTC)

    with open_editor(parse_store(store)) as opened:
        row = row_of(opened, task)
        if row.owner == opened.public_identity:
            raise TaskError("task", f"{row.id!r} is published by this store already, as far as it knows")
        known = stored_task(row.payload)
        if is_recallable(known, row, now):  # first: the owner of the task publishes it, and nobody forgets it
            opened.recall([new_recall(opened, known, now)])
        opened.set_owners([Owner(row.id, row.owner, row.term, TAKE_OVER)])
    say("taken over", row, "its aggregator publishes it as soon as it is connected", {} if as_json else None)


def forget(
    task: Id,
    store: StoreOption,
    yes: Annotated[bool, Option("--yes", help="Delete without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the reports and tallies of a task permanently; its id stays taken, so that nothing counts again.

    The task is closed, and what the broker retains of it is cleared. Backups still have what they have.
    """
    from hush_aggregator.count.tasks import row_of  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    with open_editor(parse_store(store)) as opened:
        row = row_of(opened, task, forgotten=True)
        if not yes:
            typer.confirm(f"Delete all reports of {row.id} permanently?", abort=True, err=True)
        opened.forget(row.id)
    say("forgotten", row, "its reports and tallies are deleted, and its id stays taken", {} if as_json else None)


_RETAINED_WITHIN_S = 1.0

app: Commands = Commands(
    no_args_is_help=True,
    help="Check, publish, list, withdraw and close tasks; recall reports.",
)
app.command("list")(list_)
app.command()(withdraw)
app.command()(close)
app.command("take-over")(take_over)
app.command()(forget)
app.command()(recall)

_File = Annotated[Path, Argument(help="The task, as TOML or JSON.", show_default=False)]


@app.command()
def check(file: _File, as_json: Annotated[bool, Option("--json", help="Print JSON instead of text.")] = False) -> None:
    """Say what a task costs those who answer it, and what can be learned from them."""
    task = read_task(file)
    if as_json:
        print_json(meaning(task))
    else:
        show(blocks(task))
    _warn(task)


@app.command()
def publish(
    file: _File,
    *,
    broker: BrokerOption = "",
    store: Annotated[
        str | None,
        Option(metavar="STORE", help="Give it to this store instead: its aggregator publishes and counts it."),
    ] = None,
    login: Login,
    as_json: JsonOption = False,
) -> None:
    """Publish a task: by the aggregator of a store, which counts it, or at a broker.

    A running aggregator reacts within two seconds, any other when it starts. What is published at a broker alone is
    counted by nobody but an aggregator that was started with --any-task.
    """
    if store is not None:
        _give(file, store, as_json=as_json)
        return
    if not broker:
        raise OptionError("--store", "give the store of its aggregator, or the address of a broker with --broker")
    from hush_aggregator.delivery.mqtt import MqttBroker  # noqa: PLC0415 - `check` needs no MQTT

    where = login.at(broker)
    task = read_task(file)
    _warn(task)
    bus = MqttBroker(where, identifier=f"hush-task-{secrets.token_hex(6)}")
    there = asyncio.run(_publish(task, bus, file))
    if there is not None and there is not task:
        note(f"the draft leaves the mechanism open; it stays what it was published as, {there.mechanism}")
    done, task = ("published", task) if there is None else ("already published", there)
    _say_published(done, task, {"broker": bus.name}, f", at {bus.name}", as_json=as_json)


def _give(file: Path, store: str, *, as_json: bool) -> None:
    """Give a task to a store."""
    from hush_aggregator.count.tasks import give  # noqa: PLC0415 - as above
    from hush_aggregator.store import Origin  # noqa: PLC0415 - `check` does without numpy
    from hush_aggregator.store.location import open_editor, parse_store  # noqa: PLC0415 - as above

    task = read_task(file)
    _warn(task)
    with open_editor(parse_store(store)) as opened:
        done, task = give(opened, task, str(file), Origin.COMMAND)
    _say_published(done, task, {"store": store}, "; its aggregator publishes it once it is connected", as_json=as_json)


def _say_published(done: str, task: Task, where: Mapping[str, str], follows: str, *, as_json: bool) -> None:
    digest = task.digest.hex()
    if as_json:
        facts = {"task": task.id, "digest": digest, "mechanism": task.mechanism, **where}
        print_done(json.dumps({"v": 1, "status": done.replace(" ", "_"), **facts}))
    else:
        print_done(f"{done}: {task.id}, digest {digest}{follows}")


def _warn(task: Task) -> None:
    for told in warnings(task, datetime.now(UTC)):
        note(told)


async def _publish(task: Task, bus: "Broker", file: Path) -> Task | None:
    """Publish `task` retained, unless the same question is there already: then return it as it is there.

    Raises:
        TaskError: another task is published under its id.
        BrokerError: the broker is not there, or does not keep the message.
    """
    there = await _retained(task, bus)
    if there:
        if (kept := match_published(task, there)) is not None:
            return kept
        raise TaskError(
            str(file),
            f"the task {task.id!r}, digest {task.digest.hex()}, is not the one that is published under this id at "
            f"{bus.name}, digest {digest_of(there).hex()}, and tasks never change; choose another id",
        )
    topic = task_topic(task.id)
    async with bus.connect(()) as session:
        await session.publish(topic, task.payload, retain=True)
    if await _retained(task, bus) != task.payload:
        raise BrokerError(bus.name, f"did not retain {topic}; allow this user to write it, and retained messages")
    return None


async def _retained(task: Task, bus: "Broker") -> bytes | None:
    """The payload that the broker keeps under the id of `task`. A new subscription asks for it, so it is no echo."""
    topic = task_topic(task.id)
    async with bus.connect((topic,)) as session:
        try:
            async with asyncio.timeout(_RETAINED_WITHIN_S):
                while True:
                    for delivery in await session.batch():
                        if delivery.topic == topic:
                            return delivery.payload
        except TimeoutError:
            return None
