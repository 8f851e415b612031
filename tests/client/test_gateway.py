"""What a gateway promises: one answer per device and round, learned, charged, stored and sent in this order."""

import asyncio
import sqlite3
from collections import deque
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from answers import RecordingRng
from heights import make_heights
from scripted_broker import ScriptedBroker

from hush_client import Client, Gateway, Policy, Reason
from hush_client.state import ledger, outbox
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.topics import task_topic
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.virtual_time


def open_gateway(
    broker: ScriptedBroker, state: Path, *, rng: RecordingRng | None = None, policy: Policy | None = None
) -> Gateway:
    return Gateway(broker, name="gateway", state=state, spread=0, rng=rng, policy=policy)


def ids(broker: ScriptedBroker) -> list[str]:
    frames = [decode(payload) for _, payload in broker.arrived]
    return [report.id.hex() for frame in frames if isinstance(frame, Frame) for report in frame.reports]


async def test_an_answer_is_sent_once_and_its_receipt_says_what_it_cost(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipt = await gateway.report("d", "heights", 172.0)
    assert (receipt.status, receipt.reason, receipt.task, receipt.round) == ("sent", None, "heights", 0)
    assert receipt.epsilon == receipt.spent == 1
    assert receipt.cap == 4
    assert receipt.value == "used"
    assert [topic for topic, _ in broker.arrived] == ["hush/v1/reports/heights/gateway"]
    assert ids(broker) == [receipt.report_id]


async def test_what_became_of_a_value_is_told_to_the_program_that_passed_it(tmp_path: Path) -> None:
    async with open_gateway(ScriptedBroker(), tmp_path) as gateway:
        receipts = [await gateway.report(str(value), "heights", value) for value in (999, None, 172.0)]
        assert (await gateway.report("999", "heights", 999)).value is None  # nothing of it was kept
    assert [receipt.value for receipt in receipts] == ["moved", "replaced", "used"]


async def test_twenty_calls_at_once_make_one_answer(tmp_path: Path) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with open_gateway(broker, tmp_path, rng=rng) as gateway:
        receipts = await asyncio.gather(*(gateway.report("d", "heights", 172.0) for _ in range(20)))
        draws = rng.draws
        again = await gateway.report("d", "heights", 130.0)
    assert sorted(receipt.status for receipt in receipts) == ["already_answered"] * 19 + ["sent"]
    assert len({receipt.report_id for receipt in [*receipts, again]}) == 1
    assert {receipt.spent for receipt in receipts} == {Fraction(1)}
    assert rng.draws == draws
    assert len(broker.attempts) == 1


async def test_concurrent_answers_cannot_both_take_the_last_of_a_budget(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    names = [f"t{i}" for i in range(10)]
    broker.retained |= {task_topic(name): make_heights(id=name) for name in names}
    async with open_gateway(broker, tmp_path) as gateway:
        receipts = await asyncio.gather(*(gateway.report("d", name, 172.0) for name in names))
    assert sorted(receipt.status for receipt in receipts) == ["refused"] * 6 + ["sent"] * 4
    assert len(broker.arrived) == 4


async def test_after_a_restart_the_first_receipt_is_returned(tmp_path: Path) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with open_gateway(broker, tmp_path) as gateway:
        first = await gateway.report("d", "heights", 172.0)
    async with open_gateway(broker, tmp_path, rng=rng) as gateway:
        second = await gateway.report("d", "heights", 140.0)
    assert (second.status, second.report_id, second.spent) == ("already_answered", first.report_id, first.spent)
    assert rng.draws == 0
    assert len(broker.attempts) == 1


async def test_each_device_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0) for i in range(50)))
    assert {(receipt.status, receipt.spent) for receipt in receipts} == {("sent", Fraction(1))}
    assert len(set(ids(broker))) == 50


async def test_a_report_is_on_the_disk_before_the_first_byte_is_sent(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    stored: list[int] = []

    def look() -> None:
        with sqlite3.connect(tmp_path / "hush.sqlite3") as connection:
            stored.append(outbox.count(connection))
            stored.append(len(ledger.accounts(connection)))
        connection.close()

    broker.on_publish = look
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.report("d", "heights", 172.0)
    assert stored == [1, 1]


async def test_a_value_of_the_wrong_type_is_a_mistake_before_anything_happens(tmp_path: Path) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with open_gateway(broker, tmp_path, rng=rng) as gateway:
        with pytest.raises(TypeError) as caught:
            await gateway.report("d", "heights", "172 and a half")
        assert "172" not in str(caught.value)
        assert rng.draws == 0
        assert (await gateway.report("d", "heights", 172.5)).spent == 1
    assert len(broker.attempts) == 1


@pytest.mark.parametrize("stage", ["charge", "put"])
async def test_a_charge_and_its_report_are_never_separated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("planted")

    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(f"hush_client.state.{'ledger' if stage == 'charge' else 'outbox'}.{stage}", fail)
            with pytest.raises(RuntimeError, match="planted"):
                await gateway.report("d", "heights", 172.0)
        assert broker.attempts == []
        assert (await gateway.report("d", "heights", 172.0)).spent == 1


@pytest.mark.virtual_time
async def test_an_unknown_task_is_named_with_the_broker(tmp_path: Path) -> None:
    async with open_gateway(ScriptedBroker(), tmp_path) as gateway:
        with pytest.raises(BrokerError, match=r"fake://broker: no task 'nope' on this broker: publish it"):
            await gateway.report("d", "nope", 1, timeout=0.05)


@pytest.mark.virtual_time
async def test_a_forbidden_task_is_told_and_leaves_the_others_alone(tmp_path: Path) -> None:
    broker = ScriptedBroker(forbidden=frozenset({task_topic("secret")}))
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(BrokerError, match="tasks/secret is forbidden"):
            await gateway.report("d", "secret", 1, timeout=0.05)
        assert (await gateway.report("d", "heights", 172.0)).status == "sent"
    assert broker.connections == 1


@pytest.mark.large
@pytest.mark.virtual_time
async def test_a_topic_that_is_no_longer_forbidden_is_not_called_so(tmp_path: Path) -> None:
    broker = ScriptedBroker(forbidden=frozenset({task_topic("secret")}))
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(BrokerError, match="tasks/secret is forbidden"):
            await gateway.task("secret", timeout=0.05)
        broker.forbidden.discard(task_topic("secret"))
        broker.drop()
        while broker.connections < 2:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.01)
        with pytest.raises(BrokerError, match="no task 'secret' on this broker"):
            await gateway.task("secret", timeout=0.2)


@pytest.mark.virtual_time
async def test_without_a_connection_the_reason_is_told(tmp_path: Path) -> None:
    broker = ScriptedBroker(refusals=deque(["the broker refuses the login"] * 1000))
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(BrokerError, match="refuses the login"):
            await gateway.report("d", "heights", 1, timeout=0.05)


@pytest.mark.virtual_time
async def test_a_task_that_appears_later_is_answered(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={})
    async with open_gateway(broker, tmp_path) as gateway:
        waiting = asyncio.create_task(gateway.report("d", "heights", 172.0))
        await asyncio.sleep(0.05)
        broker.retain(task_topic("heights"), make_heights())
        assert (await waiting).status == "sent"
        assert list(gateway.tasks()) == ["heights"]


@pytest.mark.virtual_time
async def test_a_task_that_changes_after_an_answer_is_refused(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.report("d", "heights", 172.0)
        broker.retain(task_topic("heights"), make_heights(epsilon="0.1"))
        await asyncio.sleep(0.02)
        receipt = await gateway.report("d", "heights", 172.0)
        assert (receipt.status, receipt.reason) == ("refused", Reason.TASK_CHANGED)


@pytest.mark.virtual_time
async def test_a_task_that_was_withdrawn_is_not_answered(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.task("heights")
        broker.retain(task_topic("heights"), b"")
        await asyncio.sleep(0.02)
        with pytest.raises(BrokerError, match="no task"):
            await gateway.report("d", "heights", 172.0, timeout=0.05)


@pytest.mark.parametrize("payload", [b"{}", b"[]", b"\xff", make_heights(id="other"), make_heights() + b" x"])
async def test_what_is_no_legal_task_is_not_answered(tmp_path: Path, payload: bytes) -> None:
    broker = ScriptedBroker(retained={task_topic("heights"): payload})
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(TaskError):
            await gateway.report("d", "heights", 172.0)


async def test_a_task_on_the_topic_of_another_is_refused(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={task_topic("heights"): make_heights(id="other")})
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(TaskError, match=r"^id: 'other' .*'heights'"):
            await gateway.task("heights")


@pytest.mark.parametrize("task_id", ["", "+", "#", "a/b", "Heights", "x" * 65])
async def test_what_is_no_task_id_is_refused(tmp_path: Path, task_id: str) -> None:
    async with open_gateway(ScriptedBroker(), tmp_path) as gateway:
        with pytest.raises(TaskError, match="id"):
            await gateway.report("d", task_id, 172.0)


async def test_the_round_is_that_of_the_clock(tmp_path: Path) -> None:
    payload = make_heights(rounds=3, round_every="1d", opens="2026-01-01T00:00:00Z", epsilon="3")
    broker, now = ScriptedBroker(retained={task_topic("heights"): payload}), [datetime(2026, 1, 1, tzinfo=UTC)]
    async with Gateway(broker, name="g", state=tmp_path, spread=0, clock=lambda: now[0]) as gateway:
        rounds = []
        for day in (1, 1, 2, 3, 9):
            now[0] = datetime(2026, 1, day, tzinfo=UTC)
            receipt = await gateway.report("d", "heights", 172.0)
            rounds.append((receipt.round, receipt.status, receipt.spent))
    assert rounds == [
        (0, "sent", Fraction(1)),
        (0, "already_answered", Fraction(1)),
        (1, "sent", Fraction(2)),
        (2, "sent", Fraction(3)),
        (2, "already_answered", Fraction(3)),
    ]


async def test_a_closed_gateway_says_so(tmp_path: Path) -> None:
    gateway = open_gateway(ScriptedBroker(), tmp_path)
    with pytest.raises(RuntimeError, match="async with"):
        await gateway.report("d", "heights", 172.0)


async def test_the_client_uses_the_user_of_the_address_as_its_sender(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Client("mqtt://alice:secret@h", device="d", state=tmp_path / "a", spread=0, transport=broker) as client:
        await client.report("heights", 172.0)
    async with Client("mqtt://h", device="d", state=str(tmp_path / "b"), spread=0, transport=broker) as client:
        await client.report("heights", 172.0)
    assert [topic.rpartition("/")[2] for topic, _ in broker.arrived] == ["alice", "d"]


@pytest.mark.parametrize("device", ["a b", "", "-a", "a/b", "x" * 129])
async def test_a_device_that_cannot_be_part_of_a_topic_is_refused_by_its_name(tmp_path: Path, device: str) -> None:
    with pytest.raises(OptionError) as raised:
        Client("mqtt://h", device=device, state=tmp_path, spread=0)
    assert str(raised.value).startswith(f"device: {device!r}"[:50])
    assert "letters, digits and . _ @ : -" in str(raised.value)


@pytest.mark.parametrize("task_id", [None, 7, b"heights", ["heights"]])
async def test_a_task_id_that_is_no_text_is_a_mistake_of_the_program(tmp_path: Path, task_id: Any) -> None:  # noqa: ANN401
    words = type(task_id).__name__
    broker = ScriptedBroker()
    async with Client("mqtt://h", device="d", state=tmp_path, spread=0, transport=broker) as client:
        for asked in (client.report(task_id, 172.0), client.task(task_id)):
            with pytest.raises(TypeError, match=words):
                await asked
        with pytest.raises(TypeError, match=words):
            client.answer(task_id, lambda: 172.0)
        assert (await client.ledger()).spent == 0


async def test_a_user_that_cannot_be_part_of_a_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="topic"):
        Client("mqtt://a%2Fb@h", device="d", state=tmp_path, spread=0)
