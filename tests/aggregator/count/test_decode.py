"""The vectorised path and `hush_common.wire.decode` read the same reports and refuse the same payloads."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from hush_aggregator.intake import DecodedBatch, receive
from hush_aggregator.intake import decode as decode_messages
from hush_common import wire
from hush_common.topics import Delivery, is_sender
from hush_common.wire import HEADER, Refusal, Report, encode_frame, encode_json


def decode(deliveries: Iterable[Delivery]) -> DecodedBatch:
    received = receive(deliveries)
    assert not received.tasks
    return decode_messages(received.reports)


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


@given(BATCHES)
@example([(TOPIC, b""), (TOPIC, b"\x01"), (TOPIC, b"\x02"), (TOPIC, b"{"), (TOPIC, b"{}")])
@example([(TOPIC, encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (-(2**63),))]))] * 3)
def test_a_batch_reads_as_its_payloads_one_by_one(batch: list[tuple[str, bytes]]) -> None:
    decoded = decode(Delivery(topic, payload) for topic, payload in batch)
    rows, refused = slowly(batch)
    assert rows_of(decoded) == rows
    assert decoded.refused == refused


def test_report_ids_that_end_in_zeros_stay_whole() -> None:
    ids = [bytes(16), b"\1" + bytes(15), bytes(15) + b"\1"]
    reports = [Report(b"sixteen bytes...", 0, report_id, (1,)) for report_id in ids]
    decoded = decode([Delivery(TOPIC, encode_frame([report])) for report in reports])
    assert [block.ids.tolist() for block in decoded.blocks] == [ids]


def test_frames_of_one_header_become_one_array() -> None:
    payloads = [encode_frame([Report(b"sixteen bytes...", 0, bytes([k]) * 16, (k,))]) for k in range(100)]
    decoded = decode([Delivery(TOPIC, payload) for payload in payloads])
    assert len(decoded.blocks) == 1
    assert decoded.blocks[0].bodies.shape == (100, 1)


def test_json_reports_and_frames_become_one_array_in_the_order_of_receipt() -> None:
    reports = [Report(b"sixteen bytes...", 0, bytes([k]) * 16, (k,)) for k in range(100)]
    payloads = [encode_json("heights", one) if one.body[0] % 3 else encode_frame([one]) for one in reports]
    topics = [f"hush/v1/reports/heights/device-{k}" for k in range(100)]
    (block,) = decode(map(Delivery, topics, payloads)).blocks
    assert block.bodies.tolist() == [[k] for k in range(100)]
    assert block.senders == [f"device-{k}" for k in range(100)]
    assert block.stated_task is None


def test_json_reports_that_state_another_task_are_a_block_of_their_own() -> None:
    report = Report(b"sixteen bytes...", 0, bytes(16), (1,))
    payloads = [encode_json("heights", report), encode_json("weights", report), encode_json("heights", report)]
    blocks = decode([Delivery(TOPIC, payload) for payload in payloads]).blocks
    assert [(block.stated_task, len(block.ids)) for block in blocks] == [(None, 2), ("weights", 1)]


def test_each_report_of_a_frame_has_its_sender() -> None:
    frames = [
        encode_frame([Report(b"sixteen bytes...", 0, bytes([k, n]) * 8, (k,)) for n in range(k)]) for k in (1, 3, 2)
    ]
    topics = [f"hush/v1/reports/heights/{name}" for name in "abc"]
    (block,) = decode(map(Delivery, topics, frames)).blocks
    assert (list(block.senders), block.sender) == (["a", "b", "b", "b", "c", "c"], None)


def test_a_frame_above_the_limit_is_malformed() -> None:
    frame = encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (1,))] * 4096)
    more = frame + frame[HEADER.size : HEADER.size + 24]
    decoded = decode([Delivery(TOPIC, frame), Delivery(TOPIC, more)])
    assert [len(block.ids) for block in decoded.blocks] == [4096]
    assert decoded.refused == {("heights", Refusal.MALFORMED): 1}


def test_the_widest_body_is_read_and_a_wider_one_refused() -> None:
    frame = encode_frame([Report(b"sixteen bytes...", 0, bytes(16), (7,) * wire.BODY_LIMIT)])
    assert decode([Delivery(TOPIC, frame)]).refused == {}
    wider = bytearray(frame + bytes(8))
    wider[2:4] = (8 * (wire.BODY_LIMIT + 1)).to_bytes(2, "big")
    assert sum(decode([Delivery(TOPIC, bytes(wider))]).refused.values()) == 1
