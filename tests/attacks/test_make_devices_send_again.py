"""An attacker who may write recalls makes devices send again and again: what it costs a device at most."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from recalling import Wall, in_virtual_time, kept, make_recall, opened, publish
from scripted_broker import ScriptedBroker

from hush_client.state.database import DeviceState
from hush_common.topics import recall_topic

REPORTS = 25


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Appended to whenever a transaction has changed anything."""
    seen: list[int] = []
    commit = DeviceState._commit

    def counted(self: DeviceState, jobs: list[Any]) -> list[Any]:
        before = self._connection.total_changes
        results = commit(self, jobs)
        if self._connection.total_changes > before:
            seen.append(len(jobs))
        return results

    monkeypatch.setattr(DeviceState, "_commit", counted)
    return seen


async def attacked(broker: ScriptedBroker, state: Path, commits: list[int], seconds: int, **options: Any) -> None:  # noqa: ANN401 - of a Gateway
    """Everything is answered and settled; then comes a new recall in every second."""
    clock = Wall()
    async with opened(broker, state, clock, **options) as gateway:
        for number in range(REPORTS):
            await gateway.report(f"d{number}", "heights", 172.0)
        await asyncio.sleep(1)
        commits.clear()
        for number in range(seconds):
            publish(broker, make_recall(number, over=number % 60))
            await asyncio.sleep(1)


def test_a_hostile_recall_every_second_for_an_hour_costs_one_resend_and_one_commit(
    tmp_path: Path, commits: list[int]
) -> None:
    broker = ScriptedBroker()
    in_virtual_time(attacked(broker, tmp_path, commits, 3599))
    assert Counter(Counter(broker.arrived).values()) == {2: REPORTS}
    assert len(commits) == 1


def test_without_the_limit_the_same_attack_costs_more(tmp_path: Path, commits: list[int]) -> None:
    broker = ScriptedBroker()
    in_virtual_time(attacked(broker, tmp_path, commits, 300, recall_every=0))
    assert len(broker.arrived) > 10 * REPORTS
    assert len(commits) > 1


def test_a_day_of_it_costs_24_times_what_is_kept_and_24_commits(tmp_path: Path, commits: list[int]) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(1)
            commits.clear()
            for number in range(24 * 60 - 1):
                publish(broker, make_recall(number, over=1))
                await asyncio.sleep(60)

    in_virtual_time(run())
    assert len(broker.arrived) == 1 + 24
    assert len(commits) == 24
    assert len(kept(tmp_path, "SELECT * FROM recall")) == 24


def test_ten_thousand_recalls_of_tasks_that_were_never_answered_are_not_even_asked_for(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    for number in range(10_000):
        publish(broker, make_recall(1, task=f"t{number}"))

    async def run() -> None:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(100)
            assert not broker.is_subscribed(recall_topic("t7"))

    in_virtual_time(run())
    assert len(broker.arrived) == 1


def test_a_recall_that_comes_and_goes_again_and_again_is_one(tmp_path: Path, commits: list[int]) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(1)
            commits.clear()
            for _ in range(1000):
                publish(broker, make_recall(1, over=1))
                broker.retain(recall_topic("heights"), b"")
                publish(broker, make_recall(1, over=1))
                await asyncio.sleep(10)

    in_virtual_time(run())
    assert (len(broker.arrived), len(commits)) == (2, 1)


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
