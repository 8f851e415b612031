"""Whatever happens to the connection, or to the caller: the same bytes, one charge."""

import asyncio
import logging
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from answers import RecordingRng
from device_state import rows, waiting
from heights import make_heights
from scripted_broker import Fate, ScriptedBroker
from virtual_time import eventually

from hush_client import Gateway, Reason, Undelivered
from hush_common.topics import Acknowledgement, task_topic

pytestmark = pytest.mark.virtual_time


def opened(broker: ScriptedBroker, state: Path, **options: Any) -> Gateway:  # noqa: ANN401 - of a Gateway
    return Gateway(broker, name="g", state=state, **({"spread": 0} | options))


def charges_and_waiting(directory: Path) -> tuple[int, int]:
    return len(rows(directory, "SELECT report_id FROM charge")), len(waiting(directory))


@pytest.mark.parametrize(("fault", "arrivals"), [(Fate.LOST, 1), (Fate.CUT, 2)])
async def test_after_a_lost_connection_the_same_bytes_are_sent_again(
    tmp_path: Path, fault: Fate, arrivals: int
) -> None:
    broker = ScriptedBroker()
    broker.faults.append(fault)
    async with opened(broker, tmp_path) as gateway:
        assert (await gateway.report("d", "heights", 172.0)).status == "sent"
    assert broker.connections == 2
    assert (len(broker.attempts), len(set(broker.attempts)), len(broker.arrived)) == (2, 1, arrivals)
    assert charges_and_waiting(tmp_path) == (1, 0)
    assert rows(tmp_path, "SELECT resends FROM charge") == [1]


async def test_an_unacknowledged_report_is_sent_after_a_restart(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    async with opened(broker, tmp_path) as gateway:
        await gateway.task("heights")  # so that only the acknowledgement is waited for in vain
        for status, waits in (("queued", False), ("already_answered", True)):
            receipt = await gateway.report("d", "heights", 172.0, timeout=0.1)
            assert (receipt.status, receipt.waiting, receipt.reason, receipt.offline) == (status, waits, None, False)
        await eventually(lambda: broker.attempts)
        assert not await gateway.flush(timeout=0.05)
    assert charges_and_waiting(tmp_path) == (1, 1)
    async with opened(broker, tmp_path) as gateway:
        assert await gateway.flush(timeout=60)
    assert (len(broker.attempts), len(set(broker.attempts))) == (2, 1)
    assert charges_and_waiting(tmp_path) == (1, 0)


async def test_closing_ends_the_wait_for_the_broker(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    async with opened(broker, tmp_path) as gateway:
        await gateway.task("heights")
        first = asyncio.create_task(gateway.report("d", "heights", 172.0, timeout=None))
        await eventually(lambda: broker.attempts)
        again = asyncio.create_task(gateway.report("d", "heights", 172.0, timeout=None))
        late = asyncio.create_task(gateway.report("other", "heights", 172.0, timeout=None))
        await asyncio.sleep(0)
    assert [(await one).status for one in (first, again, late)] == ["queued", "already_answered", "queued"]


async def test_a_close_amid_many_reports_keeps_them_whole(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with opened(broker, tmp_path) as gateway:
        await gateway.task("heights")
        calls = [asyncio.create_task(gateway.report(f"d{i}", "heights", 172.0)) for i in range(100)]
        for _ in range(3):
            await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    stored = {payload for _, payload in broker.arrived} | set(waiting(tmp_path))
    assert len(rows(tmp_path, "SELECT * FROM account")) == len(stored)


@pytest.mark.medium
async def test_a_report_that_is_cancelled_anywhere_is_whole_or_nothing(tmp_path: Path) -> None:
    for steps in range(24):
        broker, state = ScriptedBroker(), tmp_path / str(steps)
        async with opened(broker, state) as gateway:
            call = asyncio.create_task(gateway.report("d", "heights", 172.0))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait((call,))
            assert (await gateway.report("d", "heights", 140.0)).spent == 1
            assert await gateway.flush(timeout=60)
        assert len(set(broker.attempts)) == 1
        assert charges_and_waiting(state) == (1, 0)


async def test_a_close_while_the_connection_is_lost_ends(tmp_path: Path) -> None:
    for turns in range(6):
        broker = ScriptedBroker()
        async with asyncio.timeout(60), opened(broker, tmp_path) as gateway:
            await gateway.task("heights")
            broker.drop()
            for _ in range(turns):
                await asyncio.sleep(0)


async def test_a_programming_error_is_raised_at_the_close(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("planted")

    broker = ScriptedBroker(on_publish=fail)
    gateway = opened(broker, tmp_path)
    await gateway.__aenter__()
    assert (await gateway.report("d", "heights", 172.0)).status == "queued"
    assert any(record.levelname == "ERROR" for record in caplog.records), "at once"
    with pytest.raises(ExceptionGroup) as caught:
        await gateway.__aexit__(None, None, None)
    assert caught.group_contains(LookupError, match="planted")
    assert charges_and_waiting(tmp_path) == (1, 1)
    async with opened(ScriptedBroker(), tmp_path):
        pass  # the lock is free, though the error keeps all that was on the stack


async def test_at_most_64_reports_are_in_flight(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.extend([Fate.NEVER] * 1000)
    async with opened(broker, tmp_path) as gateway:
        answering = asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=None) for i in range(100)))
        await eventually(lambda: len(broker.attempts) >= 64)
        await asyncio.sleep(1)
        assert len(broker.attempts) == 64
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering


@pytest.mark.parametrize("reason", [0x87, 0x95])
async def test_a_second_request_reports_that_the_first_was_not_delivered(tmp_path: Path, reason: int) -> None:
    broker = ScriptedBroker()
    for _ in range(2):  # in the run in which it was refused, and in the next, which tries once more
        broker.answers.append(Acknowledgement(reason, can_refuse=True))
        async with opened(broker, tmp_path) as gateway:
            receipts = [await gateway.report("d", "heights", 172.0, timeout=60) for _ in range(2)]
        assert {receipt.reason for receipt in receipts} == {Undelivered.of(Acknowledgement(reason))}
        assert (receipts[1].status, receipts[1].waiting, receipts[1].can_refuse) == ("already_answered", True, True)
    async with opened(broker, tmp_path) as gateway:
        taken = await gateway.report("d", "heights", 172.0, timeout=60)
        assert (taken.status, taken.waiting, taken.reason) == ("already_answered", False, None)
        assert await gateway.flush(timeout=60)
        known = await gateway.report("d", "heights", 172.0, timeout=60)
        assert (known.status, known.waiting) == ("already_answered", False)
    assert charges_and_waiting(tmp_path) == (1, 0)


async def test_the_outbox_is_sent_in_order_after_an_outage(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    names = [f"t{i}" for i in range(4)]
    broker.retained |= {task_topic(name): make_heights(id=name) for name in names}
    broker.faults.extend([Fate.LOST])
    async with opened(broker, tmp_path) as gateway:
        for name in names:
            await gateway.task(name)
        broker.refusals.extend(["the broker is away"] * 2)
        broker.drop()
        for name in names:
            assert (await gateway.report("d", name, 172.0, timeout=0)).status == "queued"
        assert await gateway.flush(timeout=60)
    order = [topic.split("/")[3] for topic, _ in broker.arrived]
    assert order == names


async def test_a_connection_that_is_lost_over_and_over_loses_and_doubles_nothing(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.extend([Fate.CUT, Fate.LOST] * 3)
    async with opened(broker, tmp_path) as gateway:
        receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0) for i in range(300)))
    assert {receipt.status for receipt in receipts} == {"sent"}
    assert len(set(broker.arrived)) == 300
    assert set(broker.attempts) == set(broker.arrived)
    assert charges_and_waiting(tmp_path) == (300, 0)


async def test_a_full_outbox_refuses_before_anything_is_drawn_or_spent(
    tmp_path: Path,
) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with opened(broker, tmp_path, capacity=3, rng=rng) as gateway:
        await gateway.task("heights")
        broker.refusals.extend(["the broker is away"] * 1000)
        broker.drop()
        await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0) for i in range(3)))
        draws = rng.draws
        full = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0) for i in range(3, 50)))
        assert {(receipt.status, receipt.reason, receipt.spent) for receipt in full} == {
            ("refused", Reason.OUTBOX_FULL, Fraction(0))
        }
        assert rng.draws == draws
        assert (await gateway.report("d0", "heights", 172.0, timeout=0)).status == "already_answered"
        broker.refusals.clear()
        assert await gateway.flush()
        assert (await gateway.report("d3", "heights", 172.0)).status == "sent"
    assert len(set(broker.arrived)) == 4


async def test_an_outage_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    with caplog.at_level(logging.WARNING, "hush_client"):
        async with opened(broker, tmp_path) as gateway:
            await gateway.task("heights")
            broker.refusals.extend(["the broker is away"] * 3)
            broker.drop()
            assert (await gateway.report("d", "heights", 172.0)).status == "sent"
    (record,) = caplog.records
    assert record.getMessage().startswith("fake://broker: ")
