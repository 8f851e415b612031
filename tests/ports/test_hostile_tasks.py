"""Whatever is published, a port reads it as the Python client does, or refuses it."""

import random
from collections.abc import Iterator

import pytest
from port_cases import VECTORS, cases
from port_programs import Port, hexadecimal, port_of

from hush_common.task import decode_task

SEED = 5
COUNT = 2000
REFUSALS = {"malformed", "task", "mechanism", "rounds", "epsilon", "too_large"}
PIECES = [*(bytes([sign]) for sign in b'"\\{},: \n0-.e9\xc3\xff\x00'), b"1e5"]


def hostile(seed: int, count: int) -> Iterator[bytes]:
    """Legal tasks with some bytes replaced, removed, inserted or repeated."""
    source = random.Random(seed)  # noqa: S311 - a test wants the same tasks every time
    legal = [case.task.payload for case in cases(seed, 60)] + list(
        {vector["task"].encode(): None for vector in VECTORS["answers"]}
    )
    for _ in range(count):
        payload = bytearray(source.choice(legal))
        for _ in range(source.choice([1, 1, 1, 2, 5])):
            start = source.randrange(len(payload))
            end = start + source.choice([0, 1, 1, 2, 9])
            payload[start:end] = source.choice([b"", *PIECES, payload[start : start + source.randrange(30)]])
        yield bytes(payload)


def orders(payloads: list[bytes]) -> list[str]:
    return [f"answer 50 1767225600 dev 31 {hexadecimal(payload)} {'05' * 200}" for payload in payloads]


def test_a_port_never_accepts_what_the_python_client_refuses(
    port: Port, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = port_of("cpython", tmp_path_factory.mktemp("other"))
    payloads = list(hostile(SEED, port.share(COUNT)))
    outcomes, others = port.ask(orders(payloads)), other.ask(orders(payloads))
    accepted = 0
    for payload, outcome, same in zip(payloads, outcomes, others, strict=True):
        assert outcome == same or {outcome, same} <= REFUSALS, payload
        if outcome not in REFUSALS:
            accepted += 1
            digest = decode_task(payload).digest.hex()
            assert outcome in ("random", "not_open", "closed") or outcome.split()[1] == digest, payload
    assert accepted > len(payloads) // 50, "some mutations leave a legal task"


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1])
def test_a_task_has_at_most_64_kib(port: Port, size: int) -> None:
    payload = VECTORS["answers"][0]["task"].encode()
    outcome = port.ask(orders([payload + b" " * (size - len(payload))]))[0]
    assert outcome.split()[0] == ("ok" if size == 64 * 1024 else "task")
