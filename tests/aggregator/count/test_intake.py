"""The intake: read reports as `hush_common.wire` does, admit them by the clock, hold those of unknown tasks."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import starmap

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from hush import Task
from hush_aggregator.count.intake import (
    Admitted,
    BacklogWatch,
    DecodedBatch,
    PendingReports,
    Progress,
    admit,
    decode,
    receive,
)
from hush_aggregator.store import UNKNOWN, CommitOutcome
from hush_common import wire
from hush_common.task import CLOCK_SKEW, make_task
from hush_common.topics import Delivery, is_sender
from hush_common.wire import HEADER, Refusal, Report, encode_frame, encode_json


def read(*deliveries: Delivery) -> DecodedBatch:
    received = receive(deliveries)
    assert not received.tasks
    return decode(received.reports)


# Admission: the reasons, their order, and the clock

OPENS = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0}
DAILY = make_task(
    {
        "id": "daily",
        "epsilon": "3",
        "domain": NUMBER,
        "rounds": 3,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
        "closes": "2026-01-05T00:00:00Z",
    }
)
SURVEY = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
KNOWN = {task.id: task for task in (DAILY, SURVEY)}


def topic(task_id: str) -> str:
    return f"hush/v1/reports/{task_id}/device"


def report(task: Task, round_: int = 0, body: tuple[int, ...] = (1,), digest: bytes | None = None) -> Report:
    return Report(digest or task.report_digest, round_, bytes(16), body)


def judge(where: str, payload: bytes, now: datetime = OPENS + DAY) -> Admitted:
    return admit(read(Delivery(where, payload)), KNOWN, now)


def refusals(where: str, payload: bytes, now: datetime = OPENS + DAY) -> dict[tuple[str, Refusal], int]:
    admitted = judge(where, payload, now)
    assert not admitted.accepted
    return dict(admitted.refused)


def closed(where: str, payload: bytes, now: datetime) -> bool:
    """Whether it goes to the store only to be looked up there, and its sender is known for the log."""
    admitted = judge(where, payload, now)
    (accepted,) = admitted.accepted
    return accepted.late and not admitted.refused and admitted.senders == {(accepted.task.id, Refusal.CLOSED): "device"}


def test_a_fitting_report_is_accepted() -> None:
    admitted = judge(topic("daily"), encode_frame([report(DAILY, 1, (7,))]))
    (accepted,) = admitted.accepted
    assert (accepted.task, accepted.round, accepted.bodies.tolist()) == (DAILY, 1, [[7]])
    assert not admitted.refused


@pytest.mark.parametrize("name", ["weights", "", "DAILY", "x" * 5000])
def test_a_task_that_nobody_published_is_counted_in_one_bucket(name: str) -> None:
    assert refusals(topic(name), encode_frame([report(DAILY)])) == {(UNKNOWN, Refusal.UNKNOWN_TASK): 1}
    assert refusals(topic(name), b"garbage") == {(UNKNOWN, Refusal.UNKNOWN_VERSION): 1}


def test_a_topic_that_is_none_of_ours_is_counted_too() -> None:
    assert refusals("elsewhere", encode_frame([report(DAILY)])) == {(UNKNOWN, Refusal.UNKNOWN_TASK): 1}


def test_every_report_of_a_refused_frame_is_counted() -> None:
    frame = encode_frame([report(DAILY, digest=b"another task's!!")] * 5)
    assert refusals(topic("daily"), frame) == {("daily", Refusal.WRONG_DIGEST): 5}


def test_a_report_that_names_another_task_than_its_topic_is_refused() -> None:
    assert refusals(topic("daily"), encode_json("survey", report(SURVEY))) == {("daily", Refusal.WRONG_TOPIC): 1}


def test_an_answer_to_another_version_of_the_task_is_refused() -> None:
    assert refusals(topic("daily"), encode_frame([report(SURVEY, 99)])) == {("daily", Refusal.WRONG_DIGEST): 1}


@pytest.mark.parametrize("round_", [3, 2**32 - 1])
def test_a_round_that_does_not_exist_is_refused(round_: int) -> None:
    assert refusals(topic("daily"), encode_frame([report(DAILY, round_)])) == {("daily", Refusal.UNKNOWN_ROUND): 1}


@pytest.mark.parametrize("round_", [0, 1, 2])
def test_a_round_opens_with_the_tolerance_of_the_clocks(round_: int) -> None:
    frame = encode_frame([report(DAILY, round_)])
    earliest = OPENS + round_ * DAY - CLOCK_SKEW
    assert judge(topic("daily"), frame, earliest).accepted
    early = refusals(topic("daily"), frame, earliest - timedelta(microseconds=1))
    assert early == {("daily", Refusal.NOT_OPEN): 1}


def test_a_task_closes_with_the_tolerance_of_the_clocks() -> None:
    frame = encode_frame([report(DAILY, 0)])
    latest = OPENS + 4 * DAY + CLOCK_SKEW
    assert judge(topic("daily"), frame, latest).accepted
    assert closed(topic("daily"), frame, latest + timedelta(microseconds=1))


def test_reports_of_an_open_recall_are_welcome_for_longer() -> None:
    decoded = read(Delivery(topic("daily"), encode_frame([report(DAILY, 0)])))
    grace = {"daily": timedelta(hours=1)}
    for late, now in ((False, OPENS + 4 * DAY + grace["daily"]), (True, OPENS + 4 * DAY + timedelta(seconds=3601))):
        (accepted,) = admit(decoded, KNOWN, now, grace).accepted
        assert accepted.late == late


def test_a_task_that_closes_at_the_end_of_time_is_no_overflow() -> None:
    task = make_task({"id": "long", "epsilon": "1", "domain": NUMBER, "closes": "9999-12-31T23:59:59Z"})
    decoded = read(Delivery(topic("long"), encode_frame([report(task)])))
    assert admit(decoded, {"long": task}, datetime.max.replace(tzinfo=UTC)).accepted
    assert admit(decoded, {"long": task}, datetime.min.replace(tzinfo=UTC)).accepted


def test_a_closed_task_refuses_an_impossible_body_as_closed() -> None:
    frame = encode_frame([report(DAILY, 0, (2**63 - 1,))])
    assert closed(topic("daily"), frame, OPENS + 9 * DAY)


@pytest.mark.parametrize("body", [(2,), (-1,), (2**63 - 1,), (-(2**63),), (0, 1)])
def test_a_bit_that_is_none_is_out_of_range(body: tuple[int, ...]) -> None:
    frame = encode_frame([report(SURVEY, 0, body)])
    assert refusals(topic("survey"), frame) == {("survey", Refusal.OUT_OF_RANGE): 1}


def test_a_frame_keeps_its_possible_reports_when_others_are_impossible() -> None:
    mechanism = DAILY.randomizer
    ends = [body[0] for body in ((-40 * 2**20,), (41 * 2**20,))]  # epsilon 1 a round: the window is 40 grids wide
    assert mechanism.admits((ends[0],))
    assert not mechanism.admits((ends[0] - 1,))
    bodies = [ends[0], ends[0] - 1, ends[1], ends[1] + 1, 5]
    frame = encode_frame([report(DAILY, 0, (k,)) for k in bodies])
    admitted = judge(topic("daily"), frame)
    assert np.concatenate([a.bodies[:, 0] for a in admitted.accepted]).tolist() == [ends[0], ends[1], 5]
    assert admitted.refused == {("daily", Refusal.OUT_OF_RANGE): 2}


def test_nothing_gives_nothing() -> None:
    assert admit(read(), KNOWN, OPENS) == Admitted([], Counter())


# Decoding: a batch reads as its payloads do one after the other

TOPIC = "hush/v1/reports/heights/device"
Row = tuple[str | None, str | None, bytes, int, bytes, tuple[int, ...]]

INT64 = st.integers(-(2**63), 2**63 - 1)
DIGESTS = st.sampled_from([b"sixteen bytes...", b"\0" * 16, b"\xff" * 16])
ROUNDS = st.sampled_from([0, 1, 2**32 - 1])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    digest, round_, width = draw(DIGESTS), draw(ROUNDS), draw(st.integers(1, 3))
    body = st.lists(INT64, min_size=width, max_size=width).map(tuple)
    entries = draw(st.lists(st.tuples(st.binary(min_size=16, max_size=16), body), min_size=1, max_size=3))
    return encode_frame([Report(digest, round_, report_id, integers) for report_id, integers in entries])


@st.composite
def json_reports(draw: st.DrawFn) -> bytes:
    report = Report(draw(DIGESTS), draw(ROUNDS), draw(st.binary(min_size=16, max_size=16)), (draw(INT64),))
    return encode_json(draw(st.sampled_from(["heights", "weights", ""])), report)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A payload that was right: cut, lengthened, or with one byte changed."""
    payload = bytearray(draw(frames() | json_reports()))
    match draw(st.integers(0, 2)):
        case 0:
            return bytes(payload[: draw(st.integers(0, len(payload)))])
        case 1:
            return bytes(payload) + draw(st.binary(min_size=1, max_size=30))
        case _:
            payload[draw(st.integers(0, min(len(payload) - 1, 28)))] = draw(st.integers(0, 255))
            return bytes(payload)


PAYLOADS = frames() | json_reports() | damaged() | st.binary(max_size=60)
TOPICS = st.sampled_from(
    [TOPIC, "hush/v1/reports/weights/device", "hush/v1/reports//", "hush/v1/reports/heights/-", "elsewhere", ""]
)
BATCHES = st.lists(st.tuples(TOPICS, PAYLOADS), max_size=12)


def task_in(topic: str) -> str | None:
    parts = topic.split("/")
    return parts[3] if len(parts) == 5 and parts[:3] == ["hush", "v1", "reports"] else None


def slowly(batch: list[tuple[str, bytes]]) -> tuple[Counter[Row], Counter[tuple[str | None, Refusal]]]:
    rows: Counter[Row] = Counter()
    refused: Counter[tuple[str | None, Refusal]] = Counter()
    for topic, payload in batch:
        allowed = task_in(topic) is None or is_sender(topic.rpartition("/")[2])
        read = wire.decode(payload) if allowed else Refusal.BAD_SENDER
        if isinstance(read, Refusal):
            refused[task_in(topic), read] += 1
        else:
            stated = None if read.task == task_in(topic) else read.task
            rows.update((task_in(topic), stated, r.digest, r.round, r.id, r.body) for r in read.reports)
    return rows, refused


def rows_of(decoded: DecodedBatch) -> Counter[Row]:
    return Counter(
        (block.topic_task, block.stated_task, block.digest, block.round, report_id, tuple(body))
        for block in decoded.blocks
        for report_id, body in zip(block.ids.tolist(), block.bodies.tolist(), strict=True)
    )


@pytest.mark.medium
@settings(max_examples=60)
@given(BATCHES)
@example([(TOPIC, b""), (TOPIC, b"\x01"), (TOPIC, b"\x02"), (TOPIC, b"{"), (TOPIC, b"{}")])
@example([(TOPIC, encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (-(2**63),))]))] * 3)
def test_a_batch_reads_as_its_payloads_one_by_one(batch: list[tuple[str, bytes]]) -> None:
    decoded = read(*starmap(Delivery, batch))
    rows, refused = slowly(batch)
    assert rows_of(decoded) == rows
    assert decoded.refused == refused


def test_report_ids_that_end_in_zeros_stay_whole() -> None:
    ids = [bytes(16), b"\1" + bytes(15), bytes(15) + b"\1"]
    reports = [Report(b"sixteen bytes...", 0, report_id, (1,)) for report_id in ids]
    decoded = read(*(Delivery(TOPIC, encode_frame([report])) for report in reports))
    assert [block.ids.tolist() for block in decoded.blocks] == [ids]


def test_frames_of_one_header_become_one_array() -> None:
    payloads = [encode_frame([Report(b"sixteen bytes...", 0, bytes([k]) * 16, (k,))]) for k in range(100)]
    decoded = read(*(Delivery(TOPIC, payload) for payload in payloads))
    assert len(decoded.blocks) == 1
    assert decoded.blocks[0].bodies.shape == (100, 1)


def test_json_reports_and_frames_become_one_array_in_order() -> None:
    reports = [Report(b"sixteen bytes...", 0, bytes([k]) * 16, (k,)) for k in range(100)]
    payloads = [encode_json("heights", one) if one.body[0] % 3 else encode_frame([one]) for one in reports]
    topics = [f"hush/v1/reports/heights/device-{k}" for k in range(100)]
    (block,) = read(*map(Delivery, topics, payloads)).blocks
    assert block.bodies.tolist() == [[k] for k in range(100)]
    assert block.senders == [f"device-{k}" for k in range(100)]
    assert block.stated_task is None


def test_json_reports_that_state_another_task_are_a_block_of_their_own() -> None:
    report = Report(b"sixteen bytes...", 0, bytes(16), (1,))
    payloads = [encode_json("heights", report), encode_json("weights", report), encode_json("heights", report)]
    blocks = read(*(Delivery(TOPIC, payload) for payload in payloads)).blocks
    assert [(block.stated_task, len(block.ids)) for block in blocks] == [(None, 2), ("weights", 1)]


def test_each_report_of_a_frame_has_its_sender() -> None:
    frames = [
        encode_frame([Report(b"sixteen bytes...", 0, bytes([k, n]) * 8, (k,)) for n in range(k)]) for k in (1, 3, 2)
    ]
    topics = [f"hush/v1/reports/heights/{name}" for name in "abc"]
    (block,) = read(*map(Delivery, topics, frames)).blocks
    assert (list(block.senders), block.sender) == (["a", "b", "b", "b", "c", "c"], None)


def test_a_frame_above_the_limit_is_malformed() -> None:
    frame = encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (1,))] * 4096)
    more = frame + frame[HEADER.size : HEADER.size + 24]
    decoded = read(Delivery(TOPIC, frame), Delivery(TOPIC, more))
    assert [len(block.ids) for block in decoded.blocks] == [4096]
    assert decoded.refused == {("heights", Refusal.MALFORMED): 1}


def test_the_widest_body_is_read_and_a_wider_one_refused() -> None:
    frame = encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (7,) * wire.BODY_LIMIT)])
    assert read(Delivery(TOPIC, frame)).refused == {}
    wider = bytearray(frame + bytes(8))
    wider[2:4] = (8 * (wire.BODY_LIMIT + 1)).to_bytes(2, "big")
    assert sum(read(Delivery(TOPIC, bytes(wider))).refused.values()) == 1


# Patience with reports of unknown tasks

LATER, NOW = (receive([Delivery(f"hush/v1/reports/{task}/d", b"")]).reports[0] for task in ("later", "known"))


def test_an_unknown_task_is_waited_for_and_a_known_one_is_not() -> None:
    async def story() -> None:
        pending = PendingReports(1)
        assert pending.until is None
        assert pending.sift([LATER, NOW], {"known"}, extend=False) == [NOW]
        assert pending.until == pytest.approx(1, abs=1e-3)
        await asyncio.sleep(0.99)
        assert pending.sift([], {"known"}, extend=False) == []
        await asyncio.sleep(0.02)
        assert pending.settled
        assert pending.sift([NOW], {"known"}, extend=False) == [LATER, NOW]
        assert PendingReports(0).sift([LATER], {"known"}, extend=True) == [LATER]

    in_virtual_time(story())


def test_a_new_task_extends_the_wait_by_as_much_again() -> None:
    async def story() -> None:
        pending = PendingReports(1)
        await asyncio.sleep(0.9)
        assert pending.sift([LATER], {"known"}, extend=True) == []
        await asyncio.sleep(0.9)
        assert pending.sift([], {"known", "later"}, extend=False) == [LATER]
        await asyncio.sleep(0.2)
        assert pending.settled

    in_virtual_time(story())


def test_tasks_without_end_extend_the_wait_tenfold_at_most() -> None:
    async def story() -> int:
        pending, turns = PendingReports(1), 0
        while not pending.sift([LATER], {"known"}, extend=True):
            await asyncio.sleep(0.5)
            turns += 1
        return turns

    assert in_virtual_time(story()) == pytest.approx(20, abs=1)


# What the log says


def test_reports_that_come_again_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress()
    caplog.set_level("INFO")
    for details in (
        {("heights", Refusal.DUPLICATE): 7, ("sleep", Refusal.CLOSED): 2},
        {("heights", Refusal.DUPLICATE): 5},
    ):
        progress.add(CommitOutcome(0, {}, frozenset(), details))
    progress.stop()
    again, refused = caplog.records
    assert (again.levelname, refused.levelname) == ("INFO", "WARNING")
    assert {"heights:", "12"} <= set(again.message.split())
    assert {"sleep:", "2:", "closed,"} <= set(refused.message.split())


async def count(watch: BacklogWatch, seconds: int, each: int, idle: float) -> None:
    """Count so many reports each second, and wait for messages for a share of it."""
    for _ in range(seconds):
        with watch.waiting():
            await asyncio.sleep(idle)
        await asyncio.sleep(1 - idle)
        watch.add(each)


def test_a_backlog_is_reported_every_ten_seconds_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stored: list[int | None] = [900_000, 500_000, None]

    async def drain() -> None:
        watch = BacklogWatch(lambda: stored.pop(0))
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        await count(watch, 10, 40_000, 0.0)
        await asyncio.sleep(0.5)
        (state,) = filter(None, [watch.state])
        assert state.rate == pytest.approx(state.counted / 10, rel=1e-3)
        await count(watch, 20, 40_000, 0.1)
        await count(watch, 10, 10, 0.95)
        assert watch.state is None
        running.cancel()

    in_virtual_time(drain())
    assert len(caplog.messages) == 4
    assert [number in line for number, line in zip(("900000", "500000"), caplog.messages, strict=False)] == [True] * 2
    assert not any("None" in line for line in caplog.messages)


@pytest.mark.parametrize(("each", "idle"), [(90, 0.0), (40_000, 0.5)])
def test_few_reports_or_an_idle_intake_are_no_backlog(each: int, idle: float, caplog: pytest.LogCaptureFixture) -> None:
    """A line for a few would tell when a single one came."""
    caplog.set_level("INFO")

    async def live() -> None:
        watch = BacklogWatch(lambda: None)
        running = asyncio.create_task(watch.run())
        await count(watch, 60, each, idle)
        assert watch.state is None
        running.cancel()

    in_virtual_time(live())
    assert caplog.messages == []
