"""The published vectors of the wire, good and bad: whoever reads and writes these speaks the protocol."""

import json
from pathlib import Path
from typing import Any

import pytest

from hush_common.errors import TaskError
from hush_common.task import decode_task, make_task
from hush_common.wire import Frame, Refusal, Report, decode, encode_frame, encode_json

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
    with pytest.raises(TaskError, match="'refuse' is not 'clamp'") as caught:
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
    report = Report(
        bytes.fromhex(vector["digest"]), vector["round"], bytes.fromhex(vector["id"]), tuple(vector["body"])
    )
    payload = vector["payload"].encode()
    assert encode_json(vector["task"], report) == payload
    assert decode(payload) == Frame((report,), vector["task"])


@pytest.mark.parametrize("vector", BAD["payloads"], ids=name_of)
def test_a_bad_payload_is_refused_for_the_stated_reason(vector: dict[str, Any]) -> None:
    assert decode(bytes.fromhex(vector["payload"])) is Refusal(vector["refusal"])
