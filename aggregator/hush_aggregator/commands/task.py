"""`hush task`: explain and check a task, and publish it."""

import asyncio
import json
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush_aggregator.commands.task_end import JsonOption, close, recall
from hush_aggregator.commands.task_store import forget, list_, take_over, withdraw
from hush_aggregator.explain_task import blocks, meaning, warnings
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, address
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.task import Task, digest_of, read_task, settled
from hush_common.terminal import show
from hush_common.topics import task_topic

if TYPE_CHECKING:
    from hush_aggregator.bus import Bus

__all__ = ["app"]

_RETAINED_WITHIN_S = 1.0

app: typer.Typer = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Check, publish, list, withdraw and close tasks; recall reports.",
)
app.command("list")(list_)
app.command()(withdraw)
app.command()(close)
app.command("take-over")(take_over)
app.command()(forget)
app.command()(recall)

_File = Annotated[Path, typer.Argument(help="The task, as TOML or JSON.", show_default=False)]


@app.command()
def check(
    file: _File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
) -> None:
    """Say what a task costs those who answer it, and what can be learned from them."""
    task = read_task(file)
    if as_json:
        print(json.dumps(meaning(task), indent=2, ensure_ascii=False))
    else:
        show(blocks(task))
    _warn(task)


@app.command()
def publish(
    file: _File,
    *,
    broker: Annotated[
        str, typer.Option(envvar="HUSH_BROKER", help="mqtt://[user[:password]@]host[:port], or mqtts:// for TLS.")
    ] = "",
    store: Annotated[
        Path | None, typer.Option(help="Give it to this store instead: its aggregator publishes and counts it.")
    ] = None,
    user: Annotated[str, typer.Option(help=USER_HELP)] = "",
    password_file: Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a task: by the aggregator of a store, which counts it, or at a broker.

    A running aggregator reacts within two seconds, any other when it starts. What is published at a broker alone is
    counted by nobody but an aggregator that was started with --any-task.
    """
    if store is not None:
        from hush_aggregator.store import Origin, SqliteEditor  # noqa: PLC0415 - `check` does without numpy
        from hush_aggregator.task_changes import give  # noqa: PLC0415 - as above

        task = read_task(file)
        _warn(task)
        with SqliteEditor(store) as opened:
            done, task = give(opened, task, str(file), Origin.COMMAND)
        facts = {"task": task.id, "digest": task.digest.hex(), "mechanism": task.mechanism, "store": str(store)}
        if as_json:
            print(json.dumps({"v": 1, "status": done.replace(" ", "_"), **facts}))
        else:
            print(f"{done}: {task.id}, digest {task.digest.hex()}; its aggregator publishes it once it is connected")
        return
    if not broker:
        raise OptionError("--store", "give the store of its aggregator, or the address of a broker with --broker")
    from hush_aggregator.mqtt import MqttBus  # noqa: PLC0415 - `check` needs no MQTT

    where = address(broker, {"user": user}, password_file)
    task = read_task(file)
    _warn(task)
    bus = MqttBus(where, identifier=f"hush-task-{secrets.token_hex(6)}")
    there = asyncio.run(_publish(task, bus, file))
    if there is not None and there is not task:
        print(
            f"hush: the draft leaves the mechanism open; it stays what it was published as, {there.mechanism}",
            file=sys.stderr,
        )
    done, task = ("published", task) if there is None else ("already published", there)
    facts = {"task": task.id, "digest": task.digest.hex(), "mechanism": task.mechanism, "broker": bus.name}
    if as_json:
        print(json.dumps({"v": 1, "status": done.replace(" ", "_"), **facts}))
    else:
        print(f"{done}: {facts['task']}, digest {facts['digest']}, at {facts['broker']}")


def _warn(task: Task) -> None:
    for told in warnings(task, datetime.now(UTC)):
        print(f"hush: {told}", file=sys.stderr)


async def _publish(task: Task, bus: "Bus", file: Path) -> Task | None:
    """Publish `task` retained, unless the same question is there already: then return it as it is there.

    Raises:
        TaskError: another task is published under its id.
        BrokerError: the broker is not there, or does not keep the message.
    """
    there = await _retained(task, bus)
    if there:
        if (kept := settled(task, there)) is not None:
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


async def _retained(task: Task, bus: "Bus") -> bytes | None:
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
