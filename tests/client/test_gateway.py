"""What a gateway promises: one answer per device and round, learned, charged, stored and sent in this order."""

import asyncio
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from answers import RecordingRng
from device_state import rows
from heights import make_heights
from scripted_broker import Fate, ScriptedBroker
from virtual_time import eventually

from hush_client import Client, Gateway, Policy, Reason, Receipt
from hush_common.errors import BrokerError, TaskError
from hush_common.topics import task_topic
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.virtual_time


def open_gateway(broker: ScriptedBroker, state: Path, **options: Any) -> Gateway:  # noqa: ANN401 - of a Gateway
    return Gateway(broker, name="gateway", state=state, **({"spread": 0} | options))


def frames(payloads: list[tuple[str, bytes]]) -> list[list[str]]:
    """The ids of the reports in each frame."""
    found = [decode(payload) for _, payload in payloads]
    return [[report.id.hex() for report in frame.reports] for frame in found if isinstance(frame, Frame)]


def ids(receipts: dict[str, Receipt]) -> list[str]:
    return [receipt.report_id or "" for receipt in receipts.values()]


async def test_an_answer_is_sent_once_and_its_receipt_says_what_it_cost(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipt = await gateway.report("d", "heights", 172.0)
    assert (receipt.status, receipt.reason, receipt.task, receipt.round) == ("sent", None, "heights", 0)
    assert receipt.epsilon == receipt.spent == 1
    assert receipt.cap == 4
    assert receipt.value == "used"
    assert [topic for topic, _ in broker.arrived] == ["hush/v1/reports/heights/gateway"]
    assert frames(broker.arrived) == [[receipt.report_id]]


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


async def test_a_report_is_on_the_disk_before_its_first_byte_is_sent(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    stored: list[int] = []
    broker.on_publish = lambda: stored.extend(rows(tmp_path, f"SELECT count(*) FROM {name}")[0] for name in TABLES)  # noqa: S608
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.report("d", "heights", 172.0)
    assert stored == [1, 1, 1]


async def test_a_value_of_the_wrong_type_keeps_all_from_answering(tmp_path: Path) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    async with open_gateway(broker, tmp_path, rng=rng) as gateway:
        with pytest.raises(TypeError, match=r"'b': .*str") as caught:
            await gateway.report_many("heights", {"a": 140.0, "b": "140", "c": 160.0})
        assert "140" not in str(caught.value)
        with pytest.raises(TypeError) as caught:
            await gateway.report("d", "heights", "172 and a half")
        assert "172" not in str(caught.value)
        assert await gateway.flush()
    assert (broker.attempts, rng.draws) == ([], 0)
    assert rows(tmp_path, "SELECT count(*) FROM charge") == rows(tmp_path, "SELECT count(*) FROM account") == [0]


async def test_an_unknown_or_forbidden_task_leaves_the_others_alone(tmp_path: Path) -> None:
    broker = ScriptedBroker(forbidden=frozenset({task_topic("secret")}))
    async with open_gateway(broker, tmp_path) as gateway:
        for task, words in (("nope", "fake://broker.*'nope'"), ("secret", f"{task_topic('secret')} .*forbidden")):
            with pytest.raises(BrokerError, match=words):
                await gateway.report("d", task, 1, timeout=0.05)
        assert (await gateway.report("d", "heights", 172.0)).status == "sent"
    assert broker.connections == 1


@pytest.mark.parametrize("payload", [b"{}", b"[]", b"\xff", make_heights(id="other"), make_heights() + b" x"])
async def test_an_illegal_task_is_not_answered(tmp_path: Path, payload: bytes) -> None:
    broker = ScriptedBroker(retained={task_topic("heights"): payload})
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(TaskError):
            await gateway.report("d", "heights", 172.0)
    assert broker.attempts == []


async def test_a_task_that_appears_later_is_answered(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={})
    async with open_gateway(broker, tmp_path) as gateway:
        waiting = asyncio.create_task(gateway.report("d", "heights", 172.0))
        await asyncio.sleep(0.05)
        broker.retain(task_topic("heights"), make_heights())
        assert (await waiting).status == "sent"
        assert list(gateway.tasks()) == ["heights"]


async def test_a_task_that_changes_after_an_answer_is_refused(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.report("d", "heights", 172.0)
        broker.retain(task_topic("heights"), make_heights(epsilon="0.1"))
        await eventually(lambda: gateway.tasks()["heights"].epsilon != 1)
        receipt = await gateway.report("d", "heights", 172.0)
        assert (receipt.status, receipt.reason) == ("refused", Reason.TASK_CHANGED)


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


async def test_the_client_uses_the_user_of_the_address_as_its_sender(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with Client("mqtt://alice:secret@h", device="d", state=tmp_path / "a", spread=0, transport=broker) as client:
        await client.report("heights", 172.0)
    async with Client("mqtt://h", device="d", state=str(tmp_path / "b"), spread=0, transport=broker) as client:
        await client.report("heights", 172.0)
    assert [topic.rpartition("/")[2] for topic, _ in broker.arrived] == ["alice", "d"]


TABLES = ("charge", "account", "outbox")
MANY = {f"d{number}": 120.0 + number / 10 for number in range(2 * 256 + 1)}


async def test_all_devices_of_a_frame_are_charged_and_counted_once(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipts = await gateway.report_many("heights", MANY)
    assert list(receipts) == list(MANY)
    assert {(receipt.status, receipt.spent) for receipt in receipts.values()} == {("sent", Fraction(1))}
    sent = frames(broker.arrived)
    assert sorted(map(len, sent)) == [1, 256, 256]
    assert sorted(report for frame in sent for report in frame) == sorted(ids(receipts))
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT device), count(DISTINCT report_id) FROM charge") == [
        (len(MANY),) * 3
    ]


async def test_the_order_in_a_frame_is_not_that_of_the_devices(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipts = await gateway.report_many("heights", dict.fromkeys("abcdefghijklmnopqrst", 170.0))
    (frame,) = frames(broker.arrived)
    assert frame == sorted(frame)  # by ids, which are uniform whatever the device is
    assert frame != ids(receipts)


async def test_those_who_have_answered_or_may_not_do_not_keep_the_others_from_it(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        first = await gateway.report("b", "heights", 150.0)
        receipts = await gateway.report_many("heights", {"a": 140.0, "b": 200.0, "c": 160.0})
    assert [receipt.status for receipt in receipts.values()] == ["sent", "already_answered", "sent"]
    assert receipts["b"].report_id == first.report_id
    assert list(map(len, frames(broker.arrived))) == [1, 2]
    async with open_gateway(broker, tmp_path, policy=Policy(lifetime=Fraction("0.5"))) as gateway:
        refused = await gateway.report_many("heights", {"x": 140.0, "y": 150.0})
    assert {receipt.reason for receipt in refused.values()} == {Reason.OVER_BUDGET}
    assert len(broker.arrived) == 2


async def test_a_frame_that_is_not_acknowledged_comes_again_with_the_same_bytes(tmp_path: Path) -> None:
    broker, rng = ScriptedBroker(), RecordingRng()
    broker.faults.extend([Fate.LOST, Fate.CUT])
    async with open_gateway(broker, tmp_path, rng=rng) as gateway:
        await gateway.task("heights")
        receipts = await gateway.report_many("heights", {"a": 140.0, "b": 150.0}, timeout=0)
        draws = rng.draws
        assert {receipt.status for receipt in receipts.values()} == {"queued"}
        assert await gateway.flush()
    assert rng.draws == draws
    assert len(broker.attempts) == 3
    assert len(set(broker.attempts)) == 1
    assert rows(tmp_path, "SELECT report_id, resends FROM charge ORDER BY report_id") == [
        (bytes.fromhex(report), 2) for report in sorted(ids(receipts))
    ]


async def test_a_full_outbox_refuses_the_whole_call_before_anything_is_spent(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.task("heights")  # and the task is stored
    broker.refusals.extend(["no"] * 99)
    async with open_gateway(broker, tmp_path, capacity=2) as gateway:
        refused = await gateway.report_many("heights", MANY, timeout=0)
        queued = await gateway.report_many("heights", {"a": 140.0, "b": 150.0}, timeout=0)
        whole = await gateway.report_many("heights", {f"e{number}": 150.0 for number in range(256)}, timeout=0)
    assert {receipt.reason for receipt in refused.values()} == {Reason.OUTBOX_FULL}
    assert {receipt.status for receipt in (queued | whole).values()} == {"queued"}, "two frames"
    assert rows(tmp_path, "SELECT count(*) FROM charge") == [258]
