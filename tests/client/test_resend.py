"""Whatever happens to the connection, or to the caller: the same bytes, one charge."""

import asyncio
import logging
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from answers import RecordingRng
from heights import make_heights
from scripted_broker import Fate, ScriptedBroker

from hush_client import Gateway, Reason, Undelivered
from hush_client.state import ledger, outbox
from hush_client.state.database import DeviceState, Lock
from hush_common.errors import OptionError
from hush_common.topics import Acknowledgement, task_topic

pytestmark = pytest.mark.virtual_time


async def charges_and_waiting(directory: Path) -> tuple[int, int]:
    state = await DeviceState.open(directory)
    charges = await state.run(lambda c: len(ledger.charges(c, "d", "workplaces")))
    waiting = await state.run(outbox.count)
    await state.close()
    return charges, waiting


@pytest.mark.parametrize(
    ("fault", "arrivals"),
    [(Fate.LOST, 1), (Fate.CUT, 2)],
)
async def test_after_a_lost_connection_the_same_bytes_are_sent_again(
    tmp_path: Path, fault: Fate, arrivals: int
) -> None:
    broker = ScriptedBroker()
    broker.faults.extend([fault])
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        receipt = await gateway.report("d", "heights", 172.0)
    assert receipt.status == "sent"
    assert broker.connections == 2
    assert len(broker.attempts) == 2
    assert len(set(broker.attempts)) == 1
    assert len(broker.arrived) == arrivals
    assert await charges_and_waiting(tmp_path) == (1, 0)


async def test_an_unacknowledged_report_is_sent_after_a_restart(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")  # so that only the acknowledgement is waited for in vain
        receipt = await gateway.report("d", "heights", 172.0, timeout=0.1)
        assert receipt.status == "queued"
        assert (await gateway.report("d", "heights", 172.0, timeout=0.1)).status == "already_answered"
        async with asyncio.timeout(60):
            while not broker.attempts:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
        assert not await gateway.flush(timeout=0.05)
    assert await charges_and_waiting(tmp_path) == (1, 1)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        assert await gateway.flush(timeout=60)
    assert len(broker.attempts) == 2
    assert len(set(broker.attempts)) == 1
    assert await charges_and_waiting(tmp_path) == (1, 0)


@pytest.mark.parametrize("reason", [0x87, 0x95])
async def test_a_second_request_reports_that_the_first_was_not_delivered(tmp_path: Path, reason: int) -> None:
    broker = ScriptedBroker()
    for _ in range(2):  # in the run in which it was refused, and in the next, which tries once more
        broker.answers.append(Acknowledgement(reason, can_refuse=True))
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            receipts = [await gateway.report("d", "heights", 172.0, timeout=60) for _ in range(2)]
        assert {receipt.reason for receipt in receipts} == {Undelivered.of(Acknowledgement(reason))}
        assert (receipts[1].status, receipts[1].waiting, receipts[1].can_refuse) == ("already_answered", True, True)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        taken = await gateway.report("d", "heights", 172.0, timeout=60)
        assert (taken.status, taken.waiting, taken.reason) == ("already_answered", False, None)
        assert await gateway.flush(timeout=60)
        known = await gateway.report("d", "heights", 172.0, timeout=60)
        assert (known.status, known.waiting) == ("already_answered", False)
    assert await charges_and_waiting(tmp_path) == (1, 0)


async def test_a_second_request_reports_that_the_first_still_waits(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")
        for status, waiting in (("queued", False), ("already_answered", True)):
            receipt = await gateway.report("d", "heights", 172.0, timeout=0.1)
            assert (receipt.status, receipt.waiting, receipt.reason) == (status, waiting, None)
            assert not receipt.offline


async def test_who_waits_for_the_broker_while_the_gateway_closes_waits_no_longer(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")
        first = asyncio.create_task(gateway.report("d", "heights", 172.0, timeout=None))
        async with asyncio.timeout(60):
            while not broker.attempts:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
        again = asyncio.create_task(gateway.report("d", "heights", 172.0, timeout=None))
        late = asyncio.create_task(gateway.report("other", "heights", 172.0, timeout=None))
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert [(await one).status for one in (first, again, late)] == ["queued", "already_answered", "queued"]


async def test_the_ledger_counts_what_was_sent_again(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.retained[task_topic("other")] = make_heights(id="other")
    broker.faults.extend([Fate.LOST, Fate.CUT, Fate.NEVER])
    async with Gateway(broker, name="g", state=tmp_path) as gateway:
        await gateway.task("heights")
        await gateway.report("d", "heights", 172.0, timeout=0)
        async with asyncio.timeout(60):
            while len(broker.attempts) < 3:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
    async with Gateway(broker, name="g", state=tmp_path) as gateway:
        await gateway.report("d", "other", 172.0)
        assert await gateway.flush(timeout=60)
    state = await DeviceState.open(tmp_path)
    charges = await state.run(lambda c: ledger.charges(c, "d", "workplaces"))
    await state.close()
    assert {charge.task: charge.resends for charge in charges} == {"heights": 3, "other": 0}
    assert len(broker.attempts) == 5


async def test_the_outbox_is_sent_in_order_after_an_outage(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    names = [f"t{i}" for i in range(4)]
    broker.retained |= {task_topic(name): make_heights(id=name) for name in names}
    broker.faults.extend([Fate.LOST])
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
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
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0) for i in range(300)))
    assert {receipt.status for receipt in receipts} == {"sent"}
    assert len(set(broker.arrived)) == 300
    assert set(broker.attempts) == set(broker.arrived)
    assert await charges_and_waiting(tmp_path) == (0, 0)  # no charge of a device "d", nothing waiting


@pytest.mark.parametrize("steps", range(24))
async def test_a_report_that_is_cancelled_anywhere_is_whole_or_nothing(tmp_path: Path, steps: int) -> None:
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        call = asyncio.create_task(gateway.report("d", "heights", 172.0))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        receipt = await gateway.report("d", "heights", 140.0)
        assert receipt.spent == 1
        assert await gateway.flush(timeout=60)
    assert len(set(broker.attempts)) == 1
    assert await charges_and_waiting(tmp_path) == (1, 0)


async def test_a_gateway_that_is_closed_while_reports_are_made_keeps_them_whole(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")
        calls = [asyncio.create_task(gateway.report(f"d{i}", "heights", 172.0)) for i in range(100)]
        for _ in range(3):
            await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    state = await DeviceState.open(tmp_path)
    spent = len(await state.run(ledger.accounts))
    waiting = await state.run(lambda c: outbox.page(c, 0, 1000))
    await state.close()
    assert spent == len({payload for _, payload in broker.arrived} | {entry.payload for entry in waiting})


async def test_a_full_outbox_refuses_before_anything_is_drawn_or_spent(
    tmp_path: Path,
) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with Gateway(broker, name="g", state=tmp_path, spread=0, capacity=3, rng=rng) as gateway:
        await gateway.task("heights")
        broker.refusals.extend(["the broker is away"] * 1000)
        broker.drop()
        await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0) for i in range(3)))
        draws = rng.draws
        full = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0) for i in range(3, 9)))
        assert {(receipt.status, receipt.reason, receipt.spent) for receipt in full} == {
            ("refused", Reason.OUTBOX_FULL, Fraction(0))
        }
        assert rng.draws == draws
        assert (await gateway.report("d0", "heights", 172.0, timeout=0)).status == "already_answered"
        broker.refusals.clear()
        assert await gateway.flush()
        assert (await gateway.report("d3", "heights", 172.0)).status == "sent"
    assert len(set(broker.arrived)) == 4


async def test_answers_that_come_at_once_cannot_overfill_the_outbox(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=tmp_path, spread=0, capacity=10) as gateway:
        await gateway.task("heights")
        broker.faults.extend([Fate.NEVER] * 1000)
        calls = (gateway.report(f"d{i}", "heights", 172.0, timeout=0) for i in range(50))
        receipts = await asyncio.gather(*calls)
    assert sorted(receipt.status for receipt in receipts) == ["queued"] * 10 + ["refused"] * 40
    assert await charges_and_waiting(tmp_path) == (0, 10)


async def test_a_capacity_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        Gateway(ScriptedBroker(), name="g", state=tmp_path, capacity=0)


@pytest.mark.parametrize("turns", range(6))
async def test_a_gateway_that_is_closed_while_its_connection_is_lost_ends(tmp_path: Path, turns: int) -> None:
    broker = ScriptedBroker()
    gateway = Gateway(broker, name="g", state=tmp_path, spread=0)
    async with asyncio.timeout(60):
        async with gateway:
            await gateway.task("heights")
            broker.drop()
            for _ in range(turns):
                await asyncio.sleep(0)


async def test_a_mistake_of_ours_is_logged_at_once_and_raised_at_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ScriptedBroker()
    gateway = Gateway(broker, name="g", state=tmp_path, spread=0)

    def fail() -> None:
        raise LookupError("planted")

    broker.on_publish = fail
    with caplog.at_level(logging.ERROR, "hush_client"):
        await gateway.__aenter__()
        assert (await gateway.report("d", "heights", 172.0)).status == "queued"
        with pytest.raises(ExceptionGroup) as caught:
            await gateway.__aexit__(None, None, None)
    assert caught.group_contains(LookupError, match="planted")
    assert "hush-sender-g" in caplog.text
    (await asyncio.wait_for(Lock.acquire(tmp_path), 60)).release()  # though the error keeps all that was on the stack
    assert await charges_and_waiting(tmp_path) == (1, 1)


async def test_an_outage_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    with caplog.at_level(logging.WARNING, "hush_client"):
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            await gateway.task("heights")
            broker.refusals.extend(["the broker is away"] * 3)
            broker.drop()
            assert (await gateway.report("d", "heights", 172.0)).status == "sent"
    (record,) = caplog.records
    assert record.getMessage().startswith("fake://broker: ")


async def test_the_window_bounds_what_is_in_flight(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.extend([Fate.NEVER] * 1000)
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        answering = asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=None) for i in range(100)))
        async with asyncio.timeout(60):
            while len(broker.attempts) < 64:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # a window too wide would let the others out by now
        assert len(broker.attempts) == 64
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
