"""Many devices at once: one transaction, frames of many reports, a ledger for each."""

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from answers import RecordingRng
from scripted_broker import Fate, ScriptedBroker

from hush_client import Gateway, Policy, Reason, Receipt
from hush_client.privacy.answer import FRAME_REPORTS
from hush_client.state.database import FILE_NAME
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.virtual_time

MANY = {f"d{number}": 120.0 + number / 10 for number in range(2 * FRAME_REPORTS + 1)}


def open_gateway(broker: ScriptedBroker, state: Path, **arguments: object) -> Gateway:
    return Gateway(broker, name="gateway", state=state, **({"spread": 0} | arguments))  # type: ignore[arg-type]


def frames(payloads: list[tuple[str, bytes]]) -> list[list[str]]:
    found = [decode(payload) for _, payload in payloads]
    return [[report.id.hex() for report in frame.reports] for frame in found if isinstance(frame, Frame)]


def rows(state: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        return connection.execute(query).fetchall()


def ids(receipts: dict[str, Receipt]) -> list[str]:
    return [receipt.report_id or "" for receipt in receipts.values()]


async def test_all_devices_of_a_frame_are_charged_and_counted_once(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        receipts = await gateway.report_many("heights", MANY)
    assert list(receipts) == list(MANY)
    assert {(receipt.status, receipt.spent) for receipt in receipts.values()} == {("sent", Fraction(1))}
    sent = frames(broker.arrived)
    assert sorted(map(len, sent)) == [1, FRAME_REPORTS, FRAME_REPORTS]
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


async def test_a_value_of_the_wrong_type_keeps_all_from_answering(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        with pytest.raises(TypeError, match=r"'b': .*str") as caught:
            await gateway.report_many("heights", {"a": 140.0, "b": "140", "c": 160.0})
        assert "140" not in str(caught.value)
        assert await gateway.flush()
    assert broker.attempts == []
    assert rows(tmp_path, "SELECT count(*) FROM charge") == rows(tmp_path, "SELECT count(*) FROM account") == [(0,)]


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
    assert {receipt.reason for receipt in refused.values()} == {Reason.OUTBOX_FULL}
    assert {receipt.status for receipt in queued.values()} == {"queued"}
    assert rows(tmp_path, "SELECT count(*) FROM charge") == [(2,)]


async def test_one_frame_leaves_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([1000, 0])
    monkeypatch.setattr("hush_client.gateway.draw_delay", lambda *_: next(delays))
    broker = ScriptedBroker()
    async with open_gateway(broker, tmp_path) as gateway:
        await gateway.task("heights")
        await gateway.report_many("heights", {"a": 140.0, "b": 150.0}, timeout=0)
        await gateway.report("c", "heights", 170.0)
        assert await gateway.flush()
    assert list(map(len, frames(broker.arrived))) == [1, 2]


async def test_nobody_is_nothing(tmp_path: Path) -> None:
    async with open_gateway(ScriptedBroker(), tmp_path) as gateway:
        assert await gateway.report_many("heights", {}) == {}
