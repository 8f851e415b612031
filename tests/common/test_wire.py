"""The codec is total: any bytes decode to a frame or a refusal, and nothing illegal can be encoded."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hush_common.errors import TaskError
from hush_common.task import decode_task, make_task
from hush_common.wire import FRAME_LIMIT, Frame, Refusal, Report, decode, encode_frame, encode_json

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DIGESTS = st.binary(min_size=16, max_size=16)
IDS = st.binary(min_size=16, max_size=16)
ROUNDS = st.integers(0, (1 << 32) - 1)


def report(body: tuple[int, ...] = (5,), round_: int = 0, digest: bytes = bytes(16)) -> Report:
    return Report(digest, round_, bytes(16), body)


@pytest.mark.medium
@given(
    DIGESTS, ROUNDS, st.integers(1, 4).flatmap(lambda w: st.lists(st.tuples(IDS, st.tuples(*[INT64] * w)), min_size=1))
)
def test_every_frame_survives_the_wire(
    digest: bytes, round_: int, entries: list[tuple[bytes, tuple[int, ...]]]
) -> None:
    reports = tuple(Report(digest, round_, report_id, body) for report_id, body in entries)
    assert decode(encode_frame(reports)) == Frame(reports)


def changed(at: int, junk: bytes) -> bytes:
    """A frame of two reports with other bytes somewhere: most are frames."""
    frame = encode_frame((report(), report((7,))))
    return frame[:at] + junk + frame[at + len(junk) :]


@example(changed(0, b""))
@given(st.binary(max_size=200) | st.builds(changed, st.integers(0, 80), st.binary(max_size=30)))
def test_any_bytes_decode_to_a_frame_that_encodes_back_or_to_a_refusal(payload: bytes) -> None:
    frame = decode(payload)
    if isinstance(frame, Frame):
        assert encode_frame(frame.reports) == payload
    else:
        assert frame in {Refusal.MALFORMED, Refusal.UNKNOWN_VERSION}


@pytest.mark.medium
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_json_value_in_any_field_is_a_report_or_a_refusal(value: object) -> None:
    document = json.loads(encode_json("heights", report()))
    for key in document:
        frame = decode(json.dumps({**document, key: value}).encode())
        assert isinstance(frame, Frame) or frame in {Refusal.MALFORMED, Refusal.UNKNOWN_VERSION}


def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack() -> None:
    assert decode(b'{"a":' + b"[" * 30_000) is Refusal.MALFORMED


def test_a_payload_longer_than_any_json_report_is_refused_unread() -> None:
    text = encode_json("heights", report())
    limit = 32 * 1024
    assert isinstance(decode(text[:-1] + b" " * (limit - len(text)) + b"}"), Frame)
    assert decode(text[:-1] + b" " * (limit + 1 - len(text)) + b"}") is Refusal.MALFORMED


def test_a_body_has_up_to_1024_integers_in_either_encoding() -> None:
    longest = report(tuple(range(1024)))
    assert decode(encode_frame([longest])) == Frame((longest,))
    document = json.loads(encode_json("heights", longest))
    assert decode(json.dumps(document).encode()) == Frame((longest,), "heights")
    for body in ([*document["body"], 0], list[int]()):
        assert decode(json.dumps(document | {"body": body}).encode()) is Refusal.MALFORMED


def test_a_frame_has_up_to_4096_reports() -> None:
    longest = encode_frame([report()] * FRAME_LIMIT)
    assert decode(longest) == Frame((report(),) * FRAME_LIMIT)
    assert decode(longest + bytes(24)) is Refusal.MALFORMED


@given(INT64, INT64)
def test_the_length_of_a_frame_never_depends_on_the_value(one: int, other: int) -> None:
    assert len(encode_frame([report((one,))])) == len(encode_frame([report((other,))])) == 48


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ([], "4096"),
        ([report()] * (FRAME_LIMIT + 1), "4096"),
        ([report(()), report(())], "not 0"),
        ([report((0,) * 1025)], "not 1025"),
        ([report(), report(round_=1)], "round"),
        ([report(), report(digest=b"sixteen bytes...")], "task"),
        ([report(digest=bytes(32))], "not 32"),
        ([report(), report((1, 2))], "length"),
        ([report((1 << 63,))], "64-bit"),
    ],
    ids=["none", "too many", "empty body", "long body", "rounds", "digests", "long digest", "widths", "overflow"],
)
def test_an_illegal_frame_is_never_encoded(reports: list[Report], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode_frame(reports)


# ---- the published vectors, good and bad: a program that reads and writes these implements the protocol

VECTORS = Path(__file__).parents[1] / "vectors" / "v1"
GOOD = json.loads((VECTORS / "good.json").read_text(encoding="utf-8"))
BAD = json.loads((VECTORS / "bad.json").read_text(encoding="utf-8"))


def name_of(vector: dict[str, Any]) -> str:
    return str(vector.get("name") or vector["document"]["id"])


@pytest.mark.parametrize("vector", GOOD["tasks"], ids=name_of)
def test_a_task_is_published_byte_for_byte_and_bound_by_its_digest(vector: dict[str, Any]) -> None:
    task = make_task(vector["document"])
    assert task.payload == vector["payload"].encode()
    assert task.digest.hex() == vector["digest"]
    assert decode_task(task.payload) == task


@pytest.mark.parametrize("vector", BAD["tasks"], ids=name_of)
def test_a_task_under_which_silence_would_reveal_a_value_is_refused(vector: dict[str, Any]) -> None:
    payload = vector["payload"].encode()
    with pytest.raises(TaskError, match="clamp") as caught:
        decode_task(payload)
    assert caught.value.field == vector["field"]
    with pytest.raises(TaskError):
        make_task(json.loads(payload))


@pytest.mark.parametrize("vector", GOOD["frames"], ids=name_of)
def test_a_frame_is_written_and_read_byte_for_byte(vector: dict[str, Any]) -> None:
    digest = bytes.fromhex(vector["digest"])
    reports = tuple(
        Report(digest, vector["round"], bytes.fromhex(entry["id"]), tuple(entry["body"])) for entry in vector["reports"]
    )
    payload = bytes.fromhex(vector["payload"])
    assert encode_frame(reports) == payload
    assert decode(payload) == Frame(reports)


@pytest.mark.parametrize("vector", GOOD["json"], ids=name_of)
def test_a_json_report_is_written_and_read_byte_for_byte(vector: dict[str, Any]) -> None:
    digest, report_id = bytes.fromhex(vector["digest"]), bytes.fromhex(vector["id"])
    made = Report(digest, vector["round"], report_id, tuple(vector["body"]))
    payload = vector["payload"].encode()
    assert encode_json(vector["task"], made) == payload
    assert decode(payload) == Frame((made,), vector["task"])


@pytest.mark.parametrize("vector", BAD["payloads"], ids=name_of)
def test_a_bad_payload_is_refused_for_the_stated_reason(vector: dict[str, Any]) -> None:
    assert decode(bytes.fromhex(vector["payload"])) is Refusal(vector["refusal"])
