"""A device keeps what the broker has acknowledged, and sends it once more where an aggregator asks: the same bytes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from device_state import execute, opened_state
from heights import HEIGHTS, make_heights
from recalling import START, Wall, kept, make_recall, opened, publish, recalled
from scripted_broker import Fate, ScriptedBroker

from hush_client import Policy
from hush_client.privacy.answer import Question, admit
from hush_client.state import outbox
from hush_common.recall import KEPT_FOR, LAST_COUNTED, encode_recall
from hush_common.task import decode_task
from hush_common.topics import Acknowledgement, recall_topic, task_topic

pytestmark = pytest.mark.virtual_time

DONE = "SELECT hex(id) FROM recall WHERE NOT open ORDER BY began"
FOREIGN = encode_recall(make_recall(1, task="weights"))
DAY = 24 * 3600
CLOSES = {"closes": "2026-01-02T00:00:00Z"}
"""A day after the tests begin."""
OBEYED = [f"{number:032X}" for number in range(10)]


async def answered(broker: ScriptedBroker, state: Path, clock: Wall, devices: int = 3, **options: Any) -> None:  # noqa: ANN401 - of a Gateway
    """So many devices of one gateway answer, and all of it is acknowledged."""
    async with opened(broker, state, clock, **options) as gateway:
        for number in range(devices):
            assert (await gateway.report(f"d{number}", "heights", 172.0)).status in ("sent", "already_answered")


async def listening(broker: ScriptedBroker, state: Path, clock: Wall, seconds: float = 0.5, **options: Any) -> int:  # noqa: ANN401 - of a Gateway
    """How much is kept after a run that answers nothing."""
    async with opened(broker, state, clock, **options):
        await asyncio.sleep(seconds)
    return len(kept(state))


async def test_a_recall_resends_each_acknowledged_report_unchanged(tmp_path: Path) -> None:
    charges = "SELECT report_id, epsilon FROM charge"
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    before = kept(tmp_path, charges)
    async with opened(broker, tmp_path, clock) as gateway:
        await asyncio.sleep(10)
        publish(broker, make_recall(1))
        await asyncio.sleep(61)
        assert await gateway.flush(timeout=1), "what is kept does not wait for the broker"
    assert len(broker.arrived) == 6
    assert sorted(broker.arrived[3:]) == sorted(broker.arrived[:3])
    assert len(kept(tmp_path)) == 3
    assert kept(tmp_path, DONE) == OBEYED[1:2]
    assert kept(tmp_path, charges) == before
    assert kept(tmp_path, "SELECT resends FROM charge") == [1, 1, 1]


async def test_a_frame_of_many_devices_goes_again_as_a_whole(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    async with opened(broker, tmp_path, clock) as gateway:
        await gateway.report_many("heights", {f"d{number}": 172.0 for number in range(300)})
        publish(broker, make_recall(1))
        await asyncio.sleep(61)
    assert len(broker.arrived) == 4
    assert set(recalled(broker).values()) == {1}


async def test_a_recall_is_obeyed_once_even_after_a_restart(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    publish(broker, make_recall(1))
    for _ in range(3):
        await listening(broker, tmp_path, clock, 61)
    await answered(broker, tmp_path, clock, 4)
    await listening(broker, tmp_path, clock, 4000)
    assert len(broker.arrived) == 3 + 3 + 1


async def test_a_newer_recall_waits_an_hour_on_or_off_and_covers_others(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    async with opened(broker, tmp_path, clock):
        publish(broker, make_recall(1))
        await asyncio.sleep(100)
        for number in (2, 3, 4):
            publish(broker, make_recall(number))
        await asyncio.sleep(1)
    counts = []
    for off, on in ((1700, 100), (1500, 60), (200, 61)):
        await asyncio.sleep(off)
        await listening(broker, tmp_path, clock, on)
        counts.append(len(broker.arrived))
    assert counts == [6, 6, 9]
    assert kept(tmp_path, DONE) == [OBEYED[1], OBEYED[4]]


async def test_a_superseded_recall_delays_no_report(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock, 50, recall_every=10)
    async with opened(broker, tmp_path, clock, recall_every=10):
        publish(broker, make_recall(1, over=1000))
        await asyncio.sleep(400)  # by then some were sent, but for a chance of 0.6^50, and are due again
        publish(broker, make_recall(2, over=86400))
        await asyncio.sleep(601)
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
async def test_what_is_no_recall_of_what_is_kept_changes_nothing(
    tmp_path: Path, useless: Callable[[ScriptedBroker], object]
) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    async with opened(broker, tmp_path, clock) as gateway:
        useless(broker)
        await asyncio.sleep(100)
        assert (await gateway.report("d9", "heights", 172.0)).status == "sent"
    assert len(broker.arrived) == 4
    assert kept(tmp_path, "SELECT * FROM recall") == []


async def test_recalls_are_subscribed_only_for_tasks_with_kept_reports(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    broker.retained[task_topic("weights")] = make_heights(id="weights")
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
    assert seen == [False, True, False, True, False]


async def test_a_recall_never_changes_broker_or_sender(tmp_path: Path) -> None:
    clock = Wall()
    first, other = ScriptedBroker(), ScriptedBroker()
    other.name = "fake://other"
    await answered(first, tmp_path, clock)
    publish(first, make_recall(1))
    publish(other, make_recall(1))
    await listening(other, tmp_path, clock, 100)
    assert not other.arrived
    async with opened(first, tmp_path, clock, name="h"):
        await asyncio.sleep(100)
    assert len(first.arrived) == 3
    await listening(first, tmp_path, clock, 100)
    assert len(first.arrived) == 6
    assert not other.arrived


@pytest.mark.medium
async def test_each_entry_has_a_moment_of_its_own_uniform_over_the_recall(tmp_path: Path) -> None:
    broker, clock, moments = ScriptedBroker(), Wall(), list[float]()
    await answered(broker, tmp_path, clock, 200)
    async with opened(broker, tmp_path, clock):
        await asyncio.sleep(1)
        broker.on_publish = lambda: moments.append(asyncio.get_running_loop().time())
        began = asyncio.get_running_loop().time()
        publish(broker, make_recall(1, over=1000))
        await asyncio.sleep(1001)
    shares = [(moment - began) / 1000 for moment in moments]
    assert len(shares) == 200
    assert -1e-9 <= min(shares) <= max(shares) <= 1.001
    quarters = Counter(min(int(4 * share), 3) for share in shares)
    assert all(abs(quarters[quarter] - 50) < 39 for quarter in range(4)), quarters  # 6.3 deviations: 1e-9 in all
    order = [payload for _, payload in broker.arrived]
    assert order[200:] != order[:200], "in the order in which they were answered, which 200! orders are not"


@pytest.mark.parametrize(("over", "at_most"), [(0, 1.1), (1, 1.1), ((1 << 53) - 1, 86_401)])
async def test_the_time_of_a_recall_is_clamped(tmp_path: Path, over: int, at_most: float) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    async with opened(broker, tmp_path, clock):
        await asyncio.sleep(1)
        publish(broker, make_recall(1, over=over))
        await asyncio.sleep(at_most)
    assert len(broker.arrived) == 6


async def test_a_resend_that_is_lost_goes_again_until_the_broker_has_it(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    async with opened(broker, tmp_path, clock):
        await asyncio.sleep(1)
        broker.faults.extend([Fate.LOST, Fate.CUT, Fate.LOST])
        publish(broker, make_recall(1, over=1))
        await asyncio.sleep(100)
    assert set(broker.arrived[:3]) == set(broker.arrived[3:])
    assert kept(tmp_path, DONE) == OBEYED[1:2]


async def test_a_restart_sends_only_what_is_left_of_a_recall(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock, 40)
    publish(broker, make_recall(1, over=1000))
    await listening(broker, tmp_path, clock, 500)
    half = len(broker.arrived) - 40
    planned = len(kept(tmp_path, "SELECT * FROM planned"))
    await asyncio.sleep(600)
    await listening(broker, tmp_path, clock, 2)
    assert 0 < half < 40
    assert planned == 40 - half
    assert set(recalled(broker).values()) == {1}
    assert len(recalled(broker)) == 40
    assert kept(tmp_path, "SELECT * FROM planned") == []


async def test_a_clock_set_back_delays_a_recall_by_an_hour_at_most(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock)
    publish(broker, make_recall(1, over=1))
    await listening(broker, tmp_path, clock, 10)
    clock.ahead -= timedelta(days=3000)
    publish(broker, make_recall(2, over=1))
    await listening(broker, tmp_path, clock, 3700)
    assert len(broker.arrived) == 9


async def test_sync_obeys_recalls_and_leaves_later_reports_to_the_next_run(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    loop, seen = asyncio.get_running_loop(), list[tuple[bool, int, int, float]]()
    await answered(broker, tmp_path, clock, 30)
    publish(broker, make_recall(1, over=100))
    for pause in (50, 60, 0):
        async with opened(broker, tmp_path, clock) as gateway:
            began = loop.time()
            synced = await gateway.sync(timeout=30)
            seen.append((synced.done, synced.resent, synced.planned, round(loop.time() - began)))
        await asyncio.sleep(pause)
    assert [done for done, *_ in seen] == [True] * 3
    assert sum(resent for _, resent, _, _ in seen) == 30
    assert [seen[1][1] + seen[2][1], seen[2][1], 0] == [planned for _, _, planned, _ in seen]
    assert [seconds for *_, seconds in seen] == [1, 1, 1]
    assert set(recalled(broker).values()) == {1}


async def test_sync_ends_without_recalls_but_fails_without_a_broker(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(forbidden=frozenset({recall_topic("heights")})), Wall()
    await answered(broker, tmp_path, clock)
    seen = []
    for refusals in ([], ["the broker is away"] * 1000):
        broker.refusals.extend(refusals)
        async with opened(broker, tmp_path, clock) as gateway:
            synced = await gateway.sync(timeout=5)
            seen.append((synced.done, str(synced.trouble)))
    assert seen == [(True, "None"), (False, ANY)]


async def test_an_expired_recalled_report_is_not_counted_as_waiting(tmp_path: Path) -> None:
    soon = {"closes": "2026-01-01T01:00:00Z"}
    tasks = {task_topic("heights"): make_heights(**soon), task_topic("other"): make_heights(id="other")}
    broker, clock = ScriptedBroker(retained=tasks), Wall()
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
        assert await gateway.flush(timeout=100), "the new one was on its way"


async def test_a_recall_of_a_changed_task_ends_none_of_the_one_before(tmp_path: Path) -> None:
    changed = make_heights(epsilon="0.5")
    broker, clock = ScriptedBroker(), Wall()
    async with opened(broker, tmp_path, clock, recall_every=10) as gateway:
        await gateway.report("d", "heights", 172.0)
        broker.retain(task_topic("heights"), changed)
        await asyncio.sleep(1)
        await gateway.report("e", "heights", 172.0)
        publish(broker, make_recall(1, over=24 * 3600))
        await asyncio.sleep(11)
        publish(broker, make_recall(2, over=60, payload=changed))
        await asyncio.sleep(25 * 3600)
    assert sorted(recalled(broker).values()) == [1, 1]


@pytest.mark.parametrize(
    ("task", "options", "seconds"),
    [
        ({}, {}, KEPT_FOR.total_seconds()),
        (CLOSES, {}, DAY + 300),
        ({}, {"keep": DAY}, DAY),
        (CLOSES, {"keep": 3600}, 3600),
    ],
    ids=["a week", "the close and the skew", "shorter", "shorter than the close"],
)
async def test_a_report_is_kept_until_its_task_closes_or_a_week_at_most(
    tmp_path: Path, task: dict[str, str], options: dict[str, Any], seconds: int
) -> None:
    broker, clock = ScriptedBroker(retained={task_topic("heights"): make_heights(**task)}), Wall()
    await answered(broker, tmp_path, clock, 1, **options)
    counts = []
    for left in (60, -60):
        clock.ahead = timedelta(seconds=seconds - left)
        counts.append(await listening(broker, tmp_path, clock, **options))
    assert counts == [1, 0]


async def test_an_expired_report_is_deleted_and_not_sent(tmp_path: Path) -> None:
    payload = make_heights(**CLOSES)
    broker, clock = ScriptedBroker(retained={task_topic("heights"): payload}), Wall()
    async with opened(broker, tmp_path, clock) as gateway:
        await gateway.report("d", "heights", 172.0)
        await asyncio.sleep(DAY + 301)
        publish(broker, make_recall(1, over=1, payload=payload))
        await asyncio.sleep(3600)
        assert kept(tmp_path) == []
    assert len(broker.arrived) == 1


async def test_a_recalled_report_is_kept_until_it_is_sent(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock, 20)
    clock.ahead = timedelta(days=7, seconds=-60)
    async with opened(broker, tmp_path, clock):
        publish(broker, make_recall(1, over=7200))
        await asyncio.sleep(30)
    await asyncio.sleep(7200)
    await listening(broker, tmp_path, clock)
    await listening(broker, tmp_path, clock)
    assert len(recalled(broker)) == 20
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("late", "arrives"), [(2 * 60 + 299, True), (2 * 60 + 301, False)])
async def test_a_recalled_report_expires_after_close_skew_and_twice_the_spread(
    tmp_path: Path, late: int, arrives: bool
) -> None:
    payload = make_heights(**CLOSES)
    broker, clock = ScriptedBroker(retained={task_topic("heights"): payload}), Wall()
    await answered(broker, tmp_path, clock, 1)
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
    await listening(broker, tmp_path, clock)
    assert (len(broker.arrived) == 2) is arrives


async def test_keep_0_keeps_nothing_and_drops_what_was_kept(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock, 1, keep=0)
    assert kept(tmp_path) == []
    publish(broker, make_recall(1))
    await listening(broker, tmp_path, clock, keep=0)
    broker.arrived.clear()
    broker.retained.pop("hush/v1/recalls/heights")
    async with opened(broker, tmp_path, clock) as gateway:
        await gateway.report("other", "heights", 172.0)
    assert len(kept(tmp_path)) == 1
    assert await listening(broker, tmp_path, clock, keep=0) == 0
    assert len(broker.arrived) == 1


async def test_a_clock_set_back_does_not_extend_the_retention(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    await answered(broker, tmp_path, clock, 1)
    counts = []
    for days in (-1000, -1000 + 6.9, -1000 + 7.1):
        clock.ahead = timedelta(days=days)
        counts.append(await listening(broker, tmp_path, clock))
    assert counts == [1, 1, 0]


async def test_a_full_store_drops_and_counts_its_oldest_report(tmp_path: Path) -> None:
    broker, clock = ScriptedBroker(), Wall()
    one = len("fake://broker g") + len("hush/v1/reports/heights/g") + 48
    async with opened(broker, tmp_path, clock, kept_bytes=5 * one + 7, capacity=1) as gateway:
        for number in range(12):
            assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"
            await asyncio.sleep(0.1)
        statements = [await gateway.ledger(f"d{number}") for number in range(12)]
        found = [(statement.kept, statement.dropped) for statement in statements]
    assert found == [(0, 1)] * 7 + [(1, 0)] * 5
    assert kept(tmp_path) == [8, 9, 10, 11, 12]


async def test_a_frame_that_goes_counts_for_each_device_in_it(tmp_path: Path) -> None:
    async with opened(ScriptedBroker(), tmp_path, Wall(), kept_bytes=1) as gateway:
        await gateway.report_many("heights", {"a": 172.0, "b": 172.0})
        assert await gateway.flush(timeout=60)
        assert [(await gateway.ledger(device)).dropped for device in "ab"] == [1, 1]


async def test_a_report_too_late_to_be_counted_leaves_its_room(tmp_path: Path) -> None:
    last = int((START - LAST_COUNTED).timestamp() * 1000)
    question = Question(decode_task(HEIGHTS), "t", Policy(), START, capacity=1)
    async with opened_state(tmp_path) as state:
        for closes, room in ((last + 1, False), (last, True), (last, True), (None, False)):
            await state.run(partial(outbox.put, topic="t", payload=b"1", closes=closes))
            assert ((await state.run(partial(admit, question=question, device="d"))).status == "queued") is room
            if not room:
                await state.run(partial(outbox.delete, sequences=range(9)))


RECALL = "INSERT INTO recall VALUES ('fake://broker g', 'heights', zeroblob(16), "
DAMAGE = [
    "UPDATE kept SET payload = 'text'",
    "UPDATE kept SET payload = x''",
    "UPDATE kept SET topic = x'00'",
    "UPDATE kept SET topic = 'hush/v1/reports/no such task/#'",
    "UPDATE kept SET place = 7.5",
    "UPDATE kept SET acknowledged = 'never'",
    "UPDATE kept SET acknowledged = -MOST",
    "UPDATE kept SET acknowledged = MOST",
    "UPDATE kept SET closes = x'ff'",
    "UPDATE kept SET closes = -MOST",
    "UPDATE kept SET closes = MOST",
    "RECALL 'x', 60, 1)",
    "RECALL MOST, 60, 1)",
    "RECALL 1767225600000, MOST, 1)",
    "RECALL 1767225600000, 60, 'open')",
    "RECALL 1767225600000, 60, 1); INSERT INTO planned VALUES (1, zeroblob(16), 'soon')",
    "RECALL 1767225600000, 60, 1); INSERT INTO planned VALUES (1, zeroblob(16), MOST)",
    "RECALL 1767225600000, 60, 1); INSERT INTO planned VALUES (1, zeroblob(16), -MOST)",
    "INSERT INTO dropped VALUES ('d0', 'many')",
]


@pytest.mark.medium
async def test_a_damaged_row_of_what_is_kept_blocks_no_ledger(tmp_path: Path) -> None:
    for number, damage in enumerate(DAMAGE):
        broker, clock, state = ScriptedBroker(), Wall(), tmp_path / str(number)
        await answered(broker, state, clock, 1)
        execute(state, damage.replace("RECALL ", RECALL).replace("MOST", str((1 << 63) - 1)))
        async with opened(broker, state, clock) as gateway:
            await asyncio.sleep(100)
            assert (await gateway.report("other", "heights", 172.0)).status == "sent", damage
            publish(broker, make_recall(5, over=1))
            await asyncio.sleep(4000)
            statement = await gateway.ledger("d0")
        assert statement.spent == 1, damage
        assert statement.dropped == 0, damage
        assert kept(state, "SELECT hex(id) FROM recall WHERE hex(id) LIKE '%5'") == [OBEYED[5]], damage
