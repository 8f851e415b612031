"""Hostile tasks as vectors: the Python client and each port give the same verdict on every one."""

import json
from pathlib import Path
from typing import Any

from port_programs import Port, hexadecimal

from hush_common.errors import TaskError
from hush_common.task import decode_task
from hush_common.untrusted import UNPRINTABLE, is_printable

HOSTILE: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "v1" / "hostile.json").read_text(encoding="utf-8")
)
REFUSALS = {"malformed", "task", "mechanism", "rounds", "epsilon", "too_large"}


def payload_of(vector: dict[str, Any]) -> bytes:
    return "".join(text * times for text, times in vector["parts"]).encode()


def titled(title: str) -> bytes:
    return payload_of(HOSTILE["tasks"][0]).replace(
        b'"title":"T"', f'"title":"{title}"'.encode("utf-8", "surrogatepass")
    )


def characters() -> dict[int, bool]:
    """The first and the last of each range that no text has, and their neighbours; whether a title may have them."""
    edges = {at for low, high in UNPRINTABLE for at in (low, high) if at < 0x110000}
    edges |= {at for low, high in UNPRINTABLE for at in (low - 1, high + 1) if 0x20 <= at < 0x110000}
    return {at: is_printable(chr(at)) for at in sorted(edges)}


def verdicts(port: Port, payloads: list[bytes]) -> list[bool]:
    """Whether a port accepts each; without random bytes it refuses no other way than by reading."""
    orders = [f"answer 50 0 dev 31 {hexadecimal(payload)} -" for payload in payloads]
    outcomes = port.ask(orders)
    assert set(outcomes) <= REFUSALS | {"random", "not_open"}
    return [outcome in ("random", "not_open") for outcome in outcomes]


def python_accepts(payload: bytes) -> bool:
    try:
        decode_task(payload)
    except TaskError:
        return False
    return True


def test_the_ranges_of_the_vectors_are_those_of_the_python_client() -> None:
    assert [tuple(edges) for edges in HOSTILE["unprintable"]] == list(UNPRINTABLE)


def test_the_python_client_judges_hostile_tasks_as_the_vectors_say() -> None:
    for vector in HOSTILE["tasks"]:
        assert python_accepts(payload_of(vector)) == vector["accepted"], vector["name"]


def test_a_port_judges_hostile_tasks_as_the_python_client_does(port: Port) -> None:
    judged = HOSTILE["tasks"][::5] if port.is_slow else HOSTILE["tasks"]
    accepted = verdicts(port, [payload_of(vector) for vector in judged])
    assert {v["name"]: a for v, a in zip(judged, accepted, strict=True) if a != v["accepted"]} == {}


def test_the_python_client_refuses_what_cannot_be_shown() -> None:
    assert {at for at, legal in characters().items() if python_accepts(titled(chr(at))) != legal} == set()


def test_a_port_refuses_what_cannot_be_shown(port: Port) -> None:
    expected = characters()
    accepted = verdicts(port, [titled(chr(at)) for at in expected])
    assert {hex(at) for at, one in zip(expected, accepted, strict=True) if one != expected[at]} == set()
