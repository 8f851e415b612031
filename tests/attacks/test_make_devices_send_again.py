"""An attacker who may write recalls makes devices send again and again: what it costs a device at most."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from recalling import Wall, in_virtual_time, kept, make_recall, opened, publish
from scripted_broker import ScriptedBroker

from hush_common.topics import recall_topic

REPORTS = 25


async def attacked(
    broker: ScriptedBroker,
    state: Path,
    *,
    seconds: int,
    every: int,
    one: bool = False,
    **options: Any,  # noqa: ANN401 - of a Gateway
) -> int:
    """Answer and settle everything, then get a new recall, or the same one, again and again.

    Return how many of the recalls made the device write to its disk.
    """
    async with opened(broker, state, Wall(), **options) as gateway:
        for number in range(REPORTS):
            await gateway.report(f"d{number}", "heights", 172.0)
        await asyncio.sleep(1)
        with closing(sqlite3.connect(state / "hush.sqlite3")) as reader:
            seen: object = None
            written = -1
            for number in range(0, seconds, every):
                version = reader.execute("PRAGMA data_version").fetchone()  # another one after each commit
                written, seen = written + (version != seen), version
                if one:
                    broker.retain(recall_topic("heights"), b"")
                publish(broker, make_recall(1 if one else number, over=1 if one else number % 60))
                await asyncio.sleep(every)
            return written + bool(reader.execute("PRAGMA data_version").fetchone() != seen)


def test_hostile_recalls_cost_one_resend_and_one_commit_an_hour(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    assert in_virtual_time(attacked(broker, tmp_path, seconds=3590, every=10)) == 1
    assert Counter(Counter(broker.arrived).values()) == {2: REPORTS}


@pytest.mark.medium
def test_hostile_recalls_cost_more_without_the_limit(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    assert in_virtual_time(attacked(broker, tmp_path, seconds=300, every=10, recall_every=0)) > 1
    assert len(broker.arrived) > 2 * REPORTS


@pytest.mark.medium
def test_a_day_of_hostile_recalls_costs_24_resends_and_commits(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    assert in_virtual_time(attacked(broker, tmp_path, seconds=86_100, every=300)) == 24
    assert len(broker.arrived) == (1 + 24) * REPORTS
    assert len(kept(tmp_path, "SELECT * FROM recall")) == 24


def test_a_recall_that_comes_and_goes_again_and_again_is_one(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    assert in_virtual_time(attacked(broker, tmp_path, seconds=10_000, every=100, one=True)) == 1
    assert len(broker.arrived) == 2 * REPORTS


def test_recalls_of_tasks_that_were_never_answered_are_not_read(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    for number in range(1000):
        publish(broker, make_recall(1, task=f"t{number}"))

    async def run() -> None:
        async with opened(broker, tmp_path, Wall()) as gateway:
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(100)
            assert not broker.is_subscribed(recall_topic("t7"))

    in_virtual_time(run())
    assert len(broker.arrived) == 1


@pytest.mark.large
def test_weeks_of_it_leave_no_more_rows_than_recalls_can_be_open(tmp_path: Path) -> None:
    broker, clock, rows = ScriptedBroker(), Wall(), []

    async def run() -> None:
        async with opened(broker, tmp_path, clock) as gateway:
            for week in range(4):
                await gateway.report(f"d{week}", "heights", 172.0)
                for hour in range(7 * 24):
                    publish(broker, make_recall(1000 * week + hour, over=1))
                    await asyncio.sleep(3601)
                rows.append(len(kept(tmp_path, "SELECT * FROM recall")))

    in_virtual_time(run())
    assert rows[0] > 150
    assert max(rows) <= 9 * 24 + 1
