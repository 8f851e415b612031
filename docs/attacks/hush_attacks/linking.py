"""`link`: who can tell that two reports came from one device?

A report has no name in it and a fresh random id. But a broker sees who sends what and when. Here ten real devices
answer two tasks over a broker that records everything. A real aggregator counts, and a recall makes the devices send
again. Each observer matches the reports of the second task to those of the first.
"""

import asyncio
import logging
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.store.lsm import merge, read_runs
from hush_aggregator.store.reading import read_series
from hush_attacks.demonstration import Demonstration
from hush_attacks.overheard import OverheardBroker, device
from hush_client import Gateway, Policy
from hush_common.aio import run_blocking
from hush_common.recall import Recall, encode_recall
from hush_common.task import Task, make_task
from hush_common.topics import recall_topic
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DEVICES = 10
_PATIENCE = 30.0

Marks = Sequence[Hashable]
"""For each report, in the order of its devices, everything that an observer can compare with another report."""


def run(seed: int | None = None) -> Demonstration:  # noqa: ARG001 - nothing is drawn that a seed could fix
    """Watch ten devices answer two tasks."""
    seen = run_blocking(_watched())
    rows, figures = [], {}
    for name, what, (first, second) in seen:
        share = matched(first, second)
        figures[name] = share
        rows.append((name, what, f"{share * DEVICES:.3g} of {DEVICES}"))
    return Demonstration(
        "link",
        "Tell which two reports came from one device",
        ("observer", "what it knows about a report", "reports matched"),
        tuple(rows),
        "The broker knows who sends, and when. The aggregator's store and log do not. A gateway hides which of its "
        "devices answered. A resend shows that it is the same report, and nothing more about its value.",
        figures,
        partial(_draw, figures),
    )


def matched(first: Marks, second: Marks) -> float:
    """Return the largest share of devices whose two reports can be matched: by equal marks, else at random.

    If several reports share a mark, the observer guesses among them.
    """
    total = 0.0
    for mark, other in zip(first, second, strict=True):
        alike = sum(one == mark for one in second)
        total += 1 / alike if other == mark else 0.0 if alike else 1 / len(second)
    return total / len(first)


async def _watched() -> list[tuple[str, str, tuple[Marks, Marks]]]:
    tasks = tuple(_task(name) for name in ("steps", "sleep"))
    broker, log = OverheardBroker(), _Ear()
    names = [f"device-{number}" for number in range(DEVICES)]
    logger = logging.getLogger("hush")
    logger.addHandler(log)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "store.sqlite3") as store:
            counted = asyncio.Event()
            aggregator = Aggregator(broker.bus(), store, tasks=tasks, on_commit=lambda _: counted.set())
            async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group, AsyncExitStack() as stack:
                running = group.create_task(aggregator.run())
                clients = [
                    await stack.enter_async_context(device(broker, name, f"{folder}/{name}", Policy()))
                    for name in names
                ]
                for task in tasks:
                    for client in clients:
                        await client.report(task.id, 8.0)
                    await _until(counted, partial(_has, broker, task, DEVICES))
                sent = {task.id: _by_sender(broker, task, names) for task in tasks}
                behind = await _behind_a_gateway(folder)
                recall = Recall(tasks[0].id, tasks[0].digest, secrets.token_bytes(16), 1)
                broker.deliver(recall_topic(tasks[0].id), encode_recall(recall), retain=True)
                while not _has(broker, tasks[0], 2 * DEVICES):  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.05)
                again = [[report.id for one, report in broker.reports(tasks[0]) if one == name] for name in names]
                running.cancel()
            rows = {task.id: _stored(Path(folder) / "store.sqlite3", task, sent[task.id]) for task in tasks}
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
    first, second = (sent[task.id] for task in tasks)
    told = [{name for name in names if name in line} for line in log.lines]
    in_log = [tuple(sorted(place for place, line in enumerate(told) if name in line)) for name in names]
    return [
        ("a naive aggregator", "sender, id, body, time of arrival", (names, names)),
        ("the broker", "address, sender, bytes, time", ([one[0] for one in first], [one[0] for one in second])),
        ("the broker, before a gateway", "the gateway, bytes, time", behind),
        ("hush's store", "task, round, id, body", (rows[tasks[0].id], rows[tasks[1].id])),
        ("hush's log", "counts for each task", ([(one, 0) for one in in_log], [(one, 0) for one in in_log])),
        ("the broker, a resend", "the same bytes again", ([one[0] for one in again], [one[-1] for one in again])),
    ]


def _task(name: str) -> Task:
    domain = {"kind": "number", "lower": 0.0, "upper": 24.0, "unit": "h"}
    return make_task({"id": name, "epsilon": "1", "domain": domain})


async def _until(changed: asyncio.Event, enough: Callable[[], bool]) -> None:
    while not enough():
        changed.clear()
        await changed.wait()


def _has(broker: OverheardBroker, task: Task, many: int) -> bool:
    return len(broker.reports(task)) >= many


def _by_sender(broker: OverheardBroker, task: Task, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Sender and id of the one report of each device."""
    found = {sender: report.id for sender, report in broker.reports(task)}
    return [(name, found[name]) for name in names]


async def _behind_a_gateway(folder: str) -> tuple[Marks, Marks]:
    """The senders of two reports each of as many devices behind one gateway."""
    broker, tasks = OverheardBroker(), (_task("steps"), _task("sleep"))
    for task in tasks:
        broker.publish(task)
    async with Gateway(broker.transport(), name="hub", state=Path(folder) / "hub", spread=0) as gateway:
        for task in tasks:
            for number in range(DEVICES):
                await gateway.report(f"device-{number}", task.id, 8.0)
        await gateway.flush()
    first, second = ([sender for sender, _ in broker.reports(task)] for task in tasks)
    return first, second


def _stored(path: Path, task: Task, sent: Sequence[tuple[str, bytes]]) -> Marks:
    """What a store has of the report of each device, but for what is random or different for each task."""
    found: dict[bytes, tuple[int, int]] = {}
    with closing(sqlite3.connect(path)) as connection:
        rounds = connection.execute("SELECT digest, round FROM series WHERE digest = ?", (task.digest,)).fetchall()
        series = {number: round_ for (_, round_), number in read_series(connection, rounds).items()}
        for run in read_runs(connection):
            for keys, _ in merge(connection, [run]):
                for key in keys.view("V24").tolist():
                    found[key[8:]] = series.get(int.from_bytes(key[:8], "big"), -1), run.id
    return [found[id_] for _, id_ in sent]


class _Ear(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _draw(figures: Mapping[str, float], palette: Palette = LIGHT) -> "Figure":
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots()
        rows = np.arange(len(figures))[::-1]
        shares = [100 * share for share in figures.values()]
        colors = [palette.noisy if share > 50 else palette.true for share in shares]  # noqa: PLR2004 - half
        axes.barh(rows, shares, color=colors, height=0.62)
        axes.axvline(100 / DEVICES, color=palette.ink, lw=1.4, ls=(0, (4, 3)))
        axes.text(100 / DEVICES + 1, len(figures) - 0.45, "by chance", va="center", fontsize=10)
        axes.set_yticks(rows, list(figures))
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of devices whose two reports are matched")
        axes.set_title("Which two reports are of one device?", pad=16)
        finish(figure)
    return figure
