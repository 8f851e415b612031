"""A recall: any bytes are one or none, and both ends of the wire reckon with the same seconds."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_common.recall import RECALL_LIMIT, Recall, decode_recall, encode_recall

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "v1" / "recalls.json").read_text(encoding="utf-8"))
ONE = Recall(
    "heights", bytes.fromhex("02908043484338bda7455dbafab9f7a024256127525cb22a3c88662ce4f0124a"), bytes(range(16)), 3600
)


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.parametrize("vector", VECTORS["good"], ids=name_of)
def test_a_good_vector_is_read_as_it_says(vector: dict[str, Any]) -> None:
    recall = decode_recall(vector["payload"].encode())
    assert recall is not None
    assert (recall.task, recall.digest.hex(), recall.id.hex()) == (vector["task"], vector["digest"], vector["id"])
    assert (recall.over, recall.spread) == (vector["over"], vector["spread"])


def test_the_first_vector_is_written_byte_for_byte() -> None:
    vector = VECTORS["good"][0]
    recall = Recall(vector["task"], bytes.fromhex(vector["digest"]), bytes.fromhex(vector["id"]), vector["over"])
    assert encode_recall(recall) == vector["payload"].encode()


@pytest.mark.parametrize("vector", VECTORS["bad"], ids=name_of)
def test_a_bad_vector_is_none(vector: dict[str, Any]) -> None:
    assert decode_recall(vector["payload"].encode()) is None


@pytest.mark.medium
@given(
    st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,63}\Z"),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=16, max_size=16),
    st.integers(0, (1 << 53) - 1),
)
def test_every_recall_survives_the_wire_within_its_limit(task: str, digest: bytes, name: bytes, over: int) -> None:
    recall = Recall(task, digest, name, over)
    payload = encode_recall(recall)
    assert decode_recall(payload) == recall
    assert len(payload) <= RECALL_LIMIT
    assert 1 <= recall.spread <= 86400


@given(st.binary(max_size=600))
def test_any_bytes_are_a_recall_or_none(payload: bytes) -> None:
    assert decode_recall(payload) is None


@given(st.binary(min_size=1, max_size=4), st.integers(0, 120), st.integers(0, 4))
def test_a_recall_with_bytes_changed_is_one_that_is_written_back_or_none(new: bytes, at: int, gone: int) -> None:
    payload = encode_recall(ONE)
    recall = decode_recall(payload[:at] + new + payload[at + gone :])
    assert recall is None or decode_recall(encode_recall(recall)) == recall


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@pytest.mark.medium
@given(JSON)
def test_any_json_value_in_any_field_is_a_recall_or_none(value: object) -> None:
    document = json.loads(encode_recall(ONE))
    for key in document:
        recall = decode_recall(json.dumps({**document, key: value}).encode())
        assert recall is None or getattr(recall, key) == value


@pytest.mark.parametrize(
    "wrong", [{"task": "A"}, {"digest": bytes(16)}, {"id": bytes(17)}, {"over": -1}, {"over": 1 << 53}, {"over": True}]
)
def test_what_no_document_can_state_is_not_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="recall"):
        replace(ONE, **wrong)


def test_the_grace_of_a_recall_is_the_clock_skew_and_twice_the_spread() -> None:
    assert ONE.grace == timedelta(minutes=5, hours=2)
    assert replace(ONE, over=0).grace == timedelta(minutes=5, seconds=2)
    assert replace(ONE, over=1 << 50).grace == timedelta(minutes=5, days=2)
