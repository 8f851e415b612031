"""A device keeps what the broker has acknowledged, and sends it once more where an aggregator asks: the same bytes."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from heights import make_heights
from recalling import Wall, in_virtual_time, kept, make_recall, opened, publish, recalled
from scripted_broker import Fate, ScriptedBroker

from hush_client.state import ledger
from hush_client.state.database import FILE_NAME, DeviceState
from hush_common.recall import encode_recall
from hush_common.task import digest_of
from hush_common.topics import Acknowledgement, recall_topic, task_topic

DONE = "SELECT hex(id) FROM recall WHERE NOT open ORDER BY began"
FOREIGN = encode_recall(make_recall(1, task="weights"))
OBEYED = [f"{number:032X}" for number in range(10)]


async def answered(broker: ScriptedBroker, state: Path, clock: Wall, devices: int = 3, **options: Any) -> None:  # noqa: ANN401 - of a Gateway
    """So many devices of one gateway answer, and all of it is acknowledged."""
    async with opened(broker, state, clock, **options) as gateway:
        for number in range(devices):
            assert (await gateway.report(f"d{number}", "heights", 172.0)).status in ("sent", "already_answered")


async def waiting_for(broker: ScriptedBroker, state: Path, clock: Wall, seconds: float, **options: Any) -> None:  # noqa: ANN401 - of a Gateway
    """A run that only listens."""
    async with opened(broker, state, clock, **options):
        await asyncio.sleep(seconds)


async def charges(state: Path) -> list[ledger.Charge]:
    opened = await DeviceState.open(state)
    try:
        accounts = await opened.run(ledger.accounts)
        return [
            charge
            for account in accounts
            for charge in await opened.run(partial(ledger.charges, device=account.device, purpose=account.purpose))
        ]
    finally:
        await opened.close()


def test_a_recall_resends_each_acknowledged_report_unchanged(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        async with opened(broker, tmp_path, clock) as gateway:
            await asyncio.sleep(10)
            publish(broker, make_recall(1))
            await asyncio.sleep(61)
            assert await gateway.flush(timeout=1), "what is kept does not wait for the broker"

    in_virtual_time(run())
    assert len(broker.arrived) == 6
    assert sorted(broker.arrived[3:]) == sorted(broker.arrived[:3])
    assert len(kept(tmp_path)) == 3
    assert kept(tmp_path, DONE) == OBEYED[1:2]


def test_a_recall_charges_nothing_and_the_ledger_counts_resends(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> tuple[list[ledger.Charge], list[ledger.Charge]]:
        await answered(broker, tmp_path, clock)
        before = await charges(tmp_path)
        publish(broker, make_recall(1))
        await waiting_for(broker, tmp_path, clock, 61)
        return before, await charges(tmp_path)

    before, after = in_virtual_time(run())
    assert [charge.resends for charge in before] == [0, 0, 0]
    assert [charge.resends for charge in after] == [1, 1, 1]
    assert [charge.report_id for charge in after] == [charge.report_id for charge in before]
    assert [charge.epsilon for charge in after] == [charge.epsilon for charge in before]


def test_a_frame_of_many_devices_goes_again_as_a_whole(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report_many("heights", {f"d{number}": 172.0 for number in range(300)})
            publish(broker, make_recall(1))
            await asyncio.sleep(61)

    in_virtual_time(run())
    assert len(broker.arrived) == 4
    assert set(recalled(broker).values()) == {1}


def test_a_recall_is_obeyed_once_even_after_a_restart(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        publish(broker, make_recall(1))
        for _ in range(3):
            await waiting_for(broker, tmp_path, clock, 61)
        await answered(broker, tmp_path, clock, 4)
        await waiting_for(broker, tmp_path, clock, 4000)

    in_virtual_time(run())
    assert len(broker.arrived) == 3 + 3 + 1


def test_a_device_that_forgets_obeyed_recalls_is_found(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        publish(broker, make_recall(1))
        for _ in range(3):
            await waiting_for(broker, tmp_path, clock, 61)
            with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
                connection.execute("DELETE FROM recall")  # planted: nothing is remembered

    in_virtual_time(run())
    assert len(broker.arrived) > 6  # the planted fault: 12


def test_a_newer_recall_waits_an_hour_and_covers_the_earlier_ones(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> list[int]:
        await answered(broker, tmp_path, clock)
        counts = []
        async with opened(broker, tmp_path, clock):
            publish(broker, make_recall(1))
            await asyncio.sleep(100)
            for number in (2, 3, 4):
                publish(broker, make_recall(number))
            await asyncio.sleep(3400)
            counts.append(len(broker.arrived))
            await asyncio.sleep(200)
            counts.append(len(broker.arrived))
        return counts

    assert in_virtual_time(run()) == [6, 9]
    assert kept(tmp_path, DONE) == [OBEYED[1], OBEYED[4]]


def test_the_hour_goes_on_while_the_device_is_off(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> list[int]:
        await answered(broker, tmp_path, clock)
        publish(broker, make_recall(1))
        await waiting_for(broker, tmp_path, clock, 100)
        publish(broker, make_recall(2))
        counts = []
        for seconds in (1800, 1500, 300):
            await waiting_for(broker, tmp_path, clock, 61)
            counts.append(len(broker.arrived))
            await asyncio.sleep(seconds)
        await waiting_for(broker, tmp_path, clock, 61)
        return [*counts, len(broker.arrived)]

    assert in_virtual_time(run()) == [6, 6, 6, 9]


def test_a_superseded_recall_delays_no_report(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock, 50, recall_every=10)
        async with opened(broker, tmp_path, clock, recall_every=10):
            publish(broker, make_recall(1, over=1000))
            await asyncio.sleep(400)  # by then some were sent, but for a chance of 0.6^50, and are due again
            publish(broker, make_recall(2, over=86400))
            await asyncio.sleep(601)

    in_virtual_time(run())
    assert len(recalled(broker)) == 50
    assert kept(tmp_path, "SELECT hex(id), open FROM recall ORDER BY began") == [(OBEYED[1], 0), (OBEYED[2], 1)]


@pytest.mark.parametrize(
    "useless",
    [
        pytest.param(lambda b: b.retain(recall_topic("heights"), b"{}"), id="malformed"),
        pytest.param(lambda b: publish(b, make_recall(1, payload=make_heights(epsilon="2"))), id="another digest"),
        pytest.param(lambda b: publish(b, make_recall(1, task="weights")), id="another task"),
        pytest.param(lambda b: b.retain(recall_topic("heights"), FOREIGN), id="the document of another task"),
        pytest.param(lambda b: b.retain(recall_topic("heights"), b""), id="ended"),
    ],
)
def test_what_is_no_recall_of_what_is_kept_changes_nothing(
    tmp_path: Path, useless: Callable[[ScriptedBroker], object]
) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        async with opened(broker, tmp_path, clock) as gateway:
            useless(broker)
            await asyncio.sleep(100)
            assert (await gateway.report("d9", "heights", 172.0)).status == "sent"

    in_virtual_time(run())
    assert len(broker.arrived) == 4
    assert kept(tmp_path, "SELECT * FROM recall") == []


def test_where_recalls_may_not_be_read_everything_else_goes_on(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(forbidden=frozenset({recall_topic("heights")})), Wall()
    in_virtual_time(answered(broker, tmp_path, clock))
    in_virtual_time(answered(broker, tmp_path, clock, 5))
    assert len(broker.arrived) == 5


def test_recalls_are_subscribed_only_for_tasks_with_kept_reports(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    broker.retained[task_topic("weights")] = make_heights(id="weights")

    async def run() -> list[bool]:
        seen = []
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.task("weights")
            seen.append(broker.is_subscribed(recall_topic("heights")))
            await gateway.report("d", "heights", 172.0)
            await asyncio.sleep(1)
            seen += [broker.is_subscribed(recall_topic(task)) for task in ("heights", "weights")]
        async with opened(broker, tmp_path, clock):
            await asyncio.sleep(1)
            seen += [broker.is_subscribed(recall_topic(task)) for task in ("heights", "weights")]
        return seen

    assert in_virtual_time(run()) == [False, True, False, True, False]


def test_a_recall_never_changes_broker_or_sender(tmp_path: Path) -> None:
    clock = Wall()
    first, other = ScriptedBroker(), ScriptedBroker()
    other.name = "fake://other"

    async def run() -> None:
        await answered(first, tmp_path, clock)
        publish(first, make_recall(1))
        publish(other, make_recall(1))
        await waiting_for(other, tmp_path, clock, 100)
        assert not other.arrived
        async with opened(first, tmp_path, clock, name="h"):
            await asyncio.sleep(100)
        assert len(first.arrived) == 3
        await waiting_for(first, tmp_path, clock, 100)

    in_virtual_time(run())
    assert len(first.arrived) == 6
    assert not other.arrived


def test_each_entry_has_a_moment_of_its_own_uniform_over_the_recall(tmp_path: Path) -> None:
    broker, clock, moments = ScriptedBroker(), Wall(), list[float]()

    async def run() -> float:
        await answered(broker, tmp_path, clock, 400)
        async with opened(broker, tmp_path, clock):
            await asyncio.sleep(1)
            broker.on_publish = lambda: moments.append(asyncio.get_running_loop().time())
            began = asyncio.get_running_loop().time()
            publish(broker, make_recall(1, over=1000))
            await asyncio.sleep(1001)
        return began

    began = in_virtual_time(run())
    shares = [(moment - began) / 1000 for moment in moments]
    assert len(shares) == 400
    assert -1e-9 <= min(shares) <= max(shares) <= 1.001
    quarters = Counter(min(int(4 * share), 3) for share in shares)
    assert all(abs(quarters[quarter] - 100) < 55 for quarter in range(4)), quarters  # 6.3 deviations: 1e-9 in all
    order = [payload for _, payload in broker.arrived]
    assert order[400:] != order[:400], "in the order in which they were answered, which 400! orders are not"


@pytest.mark.parametrize(("over", "at_most"), [(0, 1.1), (1, 1.1), ((1 << 53) - 1, 86_401)])
def test_the_time_of_a_recall_is_clamped(tmp_path: Path, over: int, at_most: float) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        async with opened(broker, tmp_path, clock):
            await asyncio.sleep(1)
            publish(broker, make_recall(1, over=over))
            await asyncio.sleep(at_most)

    in_virtual_time(run())
    assert len(broker.arrived) == 6


def test_a_resend_that_is_lost_goes_again_until_the_broker_has_it(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        async with opened(broker, tmp_path, clock):
            await asyncio.sleep(1)
            broker.faults.extend([Fate.LOST, Fate.CUT, Fate.LOST])
            publish(broker, make_recall(1, over=1))
            await asyncio.sleep(100)

    in_virtual_time(run())
    assert set(broker.arrived[:3]) == set(broker.arrived[3:])
    assert kept(tmp_path, DONE) == OBEYED[1:2]


def test_a_restart_sends_only_what_is_left_of_a_recall(
    tmp_path: Path,
) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> tuple[int, int]:
        await answered(broker, tmp_path, clock, 40)
        publish(broker, make_recall(1, over=1000))
        await waiting_for(broker, tmp_path, clock, 500)
        half = len(broker.arrived) - 40
        planned = len(kept(tmp_path, "SELECT * FROM planned"))
        await asyncio.sleep(600)
        await waiting_for(broker, tmp_path, clock, 2)
        return half, planned

    half, planned = in_virtual_time(run())
    assert 0 < half < 40
    assert planned == 40 - half
    assert set(recalled(broker).values()) == {1}
    assert len(recalled(broker)) == 40
    assert kept(tmp_path, "SELECT * FROM planned") == []


def test_a_recall_covers_reports_acknowledged_a_moment_before(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock, 1)
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("late", "heights", 172.0)
            publish(broker, make_recall(1, over=1))
            await asyncio.sleep(5)

    in_virtual_time(run())
    assert set(recalled(broker).values()) == {1}
    assert len(recalled(broker)) == 2


def test_a_clock_set_back_delays_a_recall_by_an_hour_at_most(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        publish(broker, make_recall(1, over=1))
        await waiting_for(broker, tmp_path, clock, 10)
        clock.ahead -= timedelta(days=3000)
        publish(broker, make_recall(2, over=1))
        await waiting_for(broker, tmp_path, clock, 3700)

    in_virtual_time(run())
    assert len(broker.arrived) == 9


def test_the_digest_of_a_frame_is_where_it_is_looked_for(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    in_virtual_time(answered(broker, tmp_path, clock, 1))
    digest = digest_of(broker.retained[task_topic("heights")])
    assert kept(tmp_path, "SELECT substr(payload, 5, 16) FROM kept") == [digest[:16]]


def test_sync_obeys_recalls_and_leaves_later_reports_to_the_next_run(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> list[tuple[bool, int, int, float]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[bool, int, int, float]]()
        await answered(broker, tmp_path, clock, 30)
        publish(broker, make_recall(1, over=100))
        for pause in (50, 60, 0):
            async with opened(broker, tmp_path, clock) as gateway:
                began = loop.time()
                synced = await gateway.sync(timeout=30)
                seen.append((synced.done, synced.resent, synced.planned, round(loop.time() - began)))
            await asyncio.sleep(pause)
        return seen

    seen = in_virtual_time(run())
    assert [done for done, *_ in seen] == [True] * 3
    assert sum(resent for _, resent, _, _ in seen) == 30
    assert [seen[1][1] + seen[2][1], seen[2][1], 0] == [planned for _, _, planned, _ in seen]
    assert [seconds for *_, seconds in seen] == [1, 1, 1]
    assert set(recalled(broker).values()) == {1}


def test_sync_does_not_wait_where_nothing_is_kept(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> float:
        async with opened(broker, tmp_path, clock) as gateway:
            began = asyncio.get_running_loop().time()
            assert (await gateway.sync()).done
            return asyncio.get_running_loop().time() - began

    assert in_virtual_time(run()) < 0.1


def test_sync_ends_without_recalls_but_fails_without_a_broker(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(forbidden=frozenset({recall_topic("heights")})), Wall()

    async def run() -> list[tuple[bool, str]]:
        await answered(broker, tmp_path, clock)
        seen = []
        for refusals in ([], ["the broker is away"] * 1000):
            broker.refusals.extend(refusals)
            async with opened(broker, tmp_path, clock) as gateway:
                synced = await gateway.sync(timeout=5)
                seen.append((synced.done, str(synced.trouble)))
        return seen

    assert in_virtual_time(run()) == [(True, "None"), (False, "fake://broker: the broker is away")]


def test_an_expired_recalled_report_is_not_counted_as_waiting(tmp_path: Path) -> None:
    soon = {"closes": "2026-01-01T01:00:00Z"}
    tasks = {task_topic("heights"): make_heights(**soon), task_topic("other"): make_heights(id="other")}
    broker, clock = ScriptedBroker(retained=tasks), Wall()

    async def run() -> bool:
        async with opened(broker, tmp_path, clock) as gateway:
            await gateway.report("d", "heights", 172.0)
            broker.answers.extend([Acknowledgement(0x87, can_refuse=True)] * 99)
            publish(broker, make_recall(1, over=1, payload=make_heights(**soon)))
            await asyncio.sleep(4 * 3600)
            assert kept(tmp_path) == []
            broker.answers.clear()
            broker.faults.append(Fate.LOST)
            await gateway.task("other")
            await gateway.report("d", "other", 172.0, timeout=0)
            return await gateway.flush(timeout=100)

    assert in_virtual_time(run()), "the new one was on its way"


def test_a_recall_of_a_changed_task_ends_none_of_the_one_before(tmp_path: Path) -> None:
    changed = make_heights(epsilon="0.5")
    broker, clock = ScriptedBroker(), Wall()

    async def run() -> None:
        async with opened(broker, tmp_path, clock, recall_every=10) as gateway:
            await gateway.report("d", "heights", 172.0)
            broker.retain(task_topic("heights"), changed)
            await asyncio.sleep(1)
            await gateway.report("e", "heights", 172.0)
            publish(broker, make_recall(1, over=24 * 3600))
            await asyncio.sleep(11)
            publish(broker, make_recall(2, over=60, payload=changed))
            await asyncio.sleep(25 * 3600)

    in_virtual_time(run())
    assert sorted(recalled(broker).values()) == [1, 1]
