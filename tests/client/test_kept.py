"""What the broker has acknowledged is kept for a while, within bounds, and never in the way of a ledger."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from heights import HEIGHTS, make_heights
from recalling import START, Wall, in_virtual_time, kept, make_recall, opened, publish, recalled
from scripted_broker import ScriptedBroker

from hush_client import Gateway, Policy
from hush_client.limits import LONGEST_KEEP
from hush_client.privacy.answer import Question, admit
from hush_client.sending.schedule import milliseconds
from hush_client.state import ledger, outbox
from hush_client.state import outbox as state_kept
from hush_client.state.database import FILE_NAME, DeviceState
from hush_common.errors import OptionError
from hush_common.recall import KEPT_FOR, LAST_COUNTED
from hush_common.task import decode_task
from hush_common.topics import task_topic

DAY = 24 * 3600
CLOSES = {"closes": "2026-01-02T00:00:00Z"}
"""A day after the tests begin."""


async def answered(broker: ScriptedBroker, state: Path, clock: Wall, devices: int = 1, **options: Any) -> None:  # noqa: ANN401 - of a Gateway
    async with opened(broker, state, clock, **options) as gateway:
        for number in range(devices):
            assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"


async def looked_at(broker: ScriptedBroker, state: Path, clock: Wall, **options: Any) -> int:  # noqa: ANN401 - of a Gateway
    """How much is kept after a run of a moment."""
    async with opened(broker, state, clock, **options):
        await asyncio.sleep(0.5)
    return len(kept(state))


@pytest.mark.parametrize(
    ("task", "options", "seconds"),
    [({}, {}, 7 * DAY), (CLOSES, {}, DAY + 300), ({}, {"keep": DAY}, DAY), (CLOSES, {"keep": 3600}, 3600)],
    ids=["a week", "the close and the skew", "shorter", "shorter than the close"],
)
def test_a_report_is_kept_until_its_task_closes_or_a_week_at_most(
    tmp_path: Path, task: dict[str, str], options: dict[str, Any], seconds: int
) -> None:
    broker, clock = ScriptedBroker(retained={task_topic("heights"): make_heights(**task)}), Wall()

    async def run() -> list[int]:
        await answered(broker, tmp_path, clock, **options)
        counts = []
        for left in (60, -60):
            clock.ahead = timedelta(seconds=seconds - left)
            counts.append(await looked_at(broker, tmp_path, clock, **options))
        return counts

    assert in_virtual_time(run()) == [1, 0]


def test_an_expired_report_is_deleted_and_not_sent(tmp_path: Path) -> None:
    payload = make_heights(**CLOSES)
    broker, clock = ScriptedBroker(retained={task_topic("heights"): payload}), Wall()

    async def run() -> int:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(DAY + 301)
            publish(broker, make_recall(1, over=1, payload=payload))
            await asyncio.sleep(3600)
            return len(kept(tmp_path))

    assert in_virtual_time(run()) == 0
    assert len(broker.arrived) == 1


def test_a_recalled_report_is_kept_until_it_is_sent(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock, 20)
        clock.ahead = timedelta(days=7, seconds=-60)
        async with opened(broker, tmp_path, clock):
            publish(broker, make_recall(1, over=7200))
            await asyncio.sleep(30)
        await asyncio.sleep(7200)
        await looked_at(broker, tmp_path, clock)
        await looked_at(broker, tmp_path, clock)

    in_virtual_time(run())
    assert len(recalled(broker)) == 20
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("late", "arrives"), [(2 * 60 + 299, True), (2 * 60 + 301, False)])
def test_a_recalled_report_expires_after_close_skew_and_twice_the_spread(
    tmp_path: Path, late: int, arrives: bool
) -> None:
    payload = make_heights(**CLOSES)
    broker, clock = ScriptedBroker(retained={task_topic("heights"): payload}), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        clock.ahead = timedelta(days=1, seconds=250)
        async with opened(broker, tmp_path, clock):
            await asyncio.sleep(1)
            broker.refusals.extend(["the broker is away"] * 10_000)
            publish(broker, make_recall(1, over=60, payload=payload))
            await asyncio.sleep(0.001)
            broker.drop()
            await asyncio.sleep(1)
        broker.refusals.clear()
        clock.ahead = START + timedelta(days=1, seconds=late - 1) - clock() + clock.ahead
        await looked_at(broker, tmp_path, clock)

    in_virtual_time(run())
    assert (len(broker.arrived) == 2) is arrives


def test_keep_0_keeps_nothing_and_drops_what_was_kept(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock, keep=0)
        assert kept(tmp_path) == []
        publish(broker, make_recall(1))
        await looked_at(broker, tmp_path, clock, keep=0)
        broker.arrived.clear()
        broker.retained.pop("hush/v1/recalls/heights")
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("other", "heights", 172.0)
        assert len(kept(tmp_path)) == 1
        assert await looked_at(broker, tmp_path, clock, keep=0) == 0

    in_virtual_time(run())
    assert len(broker.arrived) == 1


def test_without_what_is_kept_a_recall_brings_nothing_back(tmp_path: Path) -> None:
    """The promise fails without it: what a broker forgot is lost."""
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock, 5, keep=0)
        broker.arrived.clear()  # the broker forgets
        publish(broker, make_recall(1, over=1))
        async with opened(broker, tmp_path, clock, keep=0):
            await asyncio.sleep(10)

    in_virtual_time(run())
    assert broker.arrived == []


def test_a_clock_set_back_does_not_extend_the_retention(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> list[int]:
        await answered(broker, tmp_path, clock)
        counts = []
        for days in (-1000, -1000 + 6.9, -1000 + 7.1):
            clock.ahead = timedelta(days=days)
            counts.append(await looked_at(broker, tmp_path, clock))
        return counts

    assert in_virtual_time(run()) == [1, 1, 0]


def test_a_full_store_drops_and_counts_its_oldest_report(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    one = len("fake://broker g") + len("hush/v1/reports/heights/g") + 48

    async def run() -> list[tuple[int, int]]:
        async with opened(broker, tmp_path, clock, kept_bytes=5 * one, capacity=1) as gateway:
            for number in range(12):
                assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"
                await asyncio.sleep(0.1)
            statements = [await gateway.ledger(f"d{number}") for number in range(12)]
            return [(statement.kept, statement.dropped) for statement in statements]

    assert in_virtual_time(run()) == [(0, 1)] * 7 + [(1, 0)] * 5
    assert kept(tmp_path) == [8, 9, 10, 11, 12]


async def test_a_frame_that_goes_counts_for_each_device_in_it(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=tmp_path, spread=0, kept_bytes=1) as gateway:
        await gateway.report_many("heights", {"a": 172.0, "b": 172.0})
        assert await gateway.flush(timeout=60)
        assert [(await gateway.ledger(device)).dropped for device in "ab"] == [1, 1]


async def test_the_bound_holds_for_what_earlier_runs_have_kept(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    for number, room in enumerate((1 << 20, 1 << 20, 100)):
        async with Gateway(broker, name="g", state=tmp_path, spread=0, kept_bytes=room) as gateway:
            await gateway.report(f"d{number}", "heights", 172.0)
    assert kept(tmp_path) == [3]


def test_a_full_capacity_counts_what_waits_alone(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        async with opened(broker, tmp_path, clock, capacity=1) as gateway:
            for number in range(20):
                assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"
                await asyncio.sleep(0.1)

    in_virtual_time(run())
    assert len(kept(tmp_path)) == 20


async def test_what_nobody_counts_any_more_leaves_the_capacity_to_others(tmp_path: Path) -> None:
    now, late = milliseconds(START), LAST_COUNTED // timedelta(milliseconds=1)
    state = await DeviceState.open(tmp_path)
    for closes, room in ((now - late + 1, False), (now - late, True), (now - late, True), (None, False)):
        put = partial(outbox.put, topic="t", payload=b"1", closes=closes)
        await state.run(put)
        question = Question(decode_task(HEIGHTS), "t", Policy(), START, capacity=1)
        assert ((await state.run(partial(admit, question=question, device="d"))).status == "queued") is room
        if not room:
            await state.run(partial(outbox.delete, sequences=range(9)))
    await state.close()


OPEN = "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), 1767225600000, 60, 1)"
DAMAGE = [
    "UPDATE kept SET payload = 'text'",
    "UPDATE kept SET topic = x'00'",
    "UPDATE kept SET place = 7.5",
    "UPDATE kept SET acknowledged = 'never'",
    "UPDATE kept SET acknowledged = -9223372036854775808",
    "UPDATE kept SET acknowledged = 9223372036854775807",
    "UPDATE kept SET closes = x'ff'",
    "UPDATE kept SET closes = -9223372036854775808",
    "UPDATE kept SET closes = 9223372036854775807",
    "UPDATE kept SET topic = 'hush/v1/reports/no such task/#'",
    "UPDATE kept SET payload = x''",
    "INSERT INTO recall VALUES ('p', 't', x'00', 0, 60, 1)",
    "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), 'x', 60, 1)",
    "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), -9223372036854775808, 60, 1)",
    "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), 9223372036854775807, 60, 1)",
    "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), 1767225600000, 9223372036854775807, 1)",
    "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), 1767225600000, 60, 'open')",
    "INSERT INTO planned VALUES (1, zeroblob(16), 'soon')",
    "INSERT INTO planned VALUES (99, 'id', 0)",
    "INSERT INTO dropped VALUES ('d0', 'many')",
    OPEN + "; INSERT INTO planned VALUES (1, zeroblob(16), 9223372036854775807)",  # noqa: S608 - of this file
    OPEN + "; INSERT INTO planned VALUES (1, zeroblob(16), -9223372036854775808)",  # noqa: S608 - of this file
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_of_what_is_kept_blocks_no_ledger(tmp_path: Path, damage: str) -> None:
    broker, clock = ScriptedBroker(), Wall()
    in_virtual_time(answered(broker, tmp_path, clock))
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        connection.executescript(damage)

    async def run() -> Any:  # noqa: ANN401 - a statement
        async with opened(broker, tmp_path, clock) as gateway:
            await asyncio.sleep(100)
            assert (await gateway.report("other", "heights", 172.0)).status == "sent"
            publish(broker, make_recall(5, over=1))
            await asyncio.sleep(4000)
            return await gateway.ledger("d0")

    statement = in_virtual_time(run())
    assert statement.spent == 1
    assert statement.dropped == 0
    assert kept(tmp_path, "SELECT hex(id) FROM recall WHERE hex(id) LIKE '%5'") == ["0" * 31 + "5"]


async def test_a_value_that_is_missing_where_none_may_be_blocks_no_ledger_either(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.report("d", "heights", 172.0)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        for allowed in (True, False):
            connection.execute("PRAGMA writable_schema = ON")
            old, new = ("INTEGER NOT NULL, closes", "INTEGER, closes")[:: 1 if allowed else -1]
            connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'kept'", (old, new))
            connection.execute("PRAGMA writable_schema = RESET")
            if allowed:
                connection.execute("UPDATE kept SET acknowledged = NULL")
        assert connection.execute("PRAGMA quick_check(1)").fetchone() == ("NULL value in kept.acknowledged",)
    state = await DeviceState.open(tmp_path)
    assert await state.run(partial(ledger.spent, device="d", purpose="workplaces")) == 1
    assert await state.run(partial(state_kept.retained_bytes)) == 0
    await state.close()
