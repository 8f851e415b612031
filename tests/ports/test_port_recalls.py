"""Recalls as the ports read and obey them: every language from the same vectors."""

import json
import random
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from port_programs import Port, hexadecimal

from hush_client.state import outbox
from hush_client.state.database import DeviceState
from hush_common.recall import Recall, decode_recall, encode_recall
from hush_common.rng import SystemRng

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "v1" / "recalls.json").read_text(encoding="utf-8"))
DIGEST = "02908043484338bda7455dbafab9f7a024256127525cb22a3c88662ce4f0124a"
FRAME = f"02000008{DIGEST[:32]}00000000000102030405060708090a0b0c0d0e0f000000000008b75f"
NOTHING = "00" * 20
PIECES = [b"0", b"9", b"a", b" ", b'"', b"\\", b",", b":", b"}"]


def order(payload: bytes | str, *, frame: str = FRAME, script: str = NOTHING) -> str:
    return f"recall {hexadecimal(payload)} {frame} {script}"


def test_a_port_reads_the_good_vectors(port: Port) -> None:
    outcomes = port.ask([order(vector["payload"]) for vector in VECTORS["good"]])
    for vector, outcome in zip(VECTORS["good"], outcomes, strict=True):
        facts = [vector["task"], vector["digest"], vector["id"], str(vector["spread"]), "yes", "0"]
        assert outcome == " ".join(["ok", *facts, "hush/v1/recalls/heights"]), vector["name"]


def test_a_port_ignores_the_bad_vectors(port: Port) -> None:
    for vector, outcome in zip(
        VECTORS["bad"], port.ask([order(vector["payload"]) for vector in VECTORS["bad"]]), strict=True
    ):
        assert outcome in {"malformed", "task"}, vector["name"]


def test_a_port_takes_bytes_that_are_no_text_for_no_recall(port: Port) -> None:
    good = VECTORS["good"][0]["payload"].encode()
    broken = [good[:20] + b"\xff" + good[21:], b"\xef\xbb\xbf" + good, good.replace(b"heights", b"h\x00ights")]
    assert set(port.ask([order(payload) for payload in broken])) <= {"malformed", "task"}


@pytest.mark.parametrize(
    ("frame", "asked"),
    [(FRAME, "yes"), (FRAME.replace(DIGEST[16:32], "0" * 16), "no"), (FRAME[:46], "no"), ("-", "no")],
    ids=["its own", "another digest after 8 bytes", "too short", "nothing"],
)
def test_a_port_knows_which_frames_are_meant(port: Port, frame: str, asked: str) -> None:
    mine, other = (Recall(task, bytes.fromhex(DIGEST), bytes(16), 60) for task in ("heights", "weights"))
    outcomes = port.ask([order(encode_recall(recall), frame=frame) for recall in (mine, other)])
    assert [outcome.split()[5] for outcome in outcomes] == [asked, "no"]


def test_a_port_draws_the_delays_of_the_vectors(port: Port) -> None:
    orders = [
        order(encode_recall(Recall("heights", bytes(32), bytes(16), vector["spread"])), script=vector["random"])
        for vector in VECTORS["delays"]
    ]
    for vector, outcome in zip(VECTORS["delays"], port.ask(orders), strict=True):
        assert outcome.split()[6] == str(vector["milliseconds"]), vector


def test_the_python_client_draws_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for vector in VECTORS["delays"]:
        script = bytes.fromhex(vector["random"])
        taken = iter(range(len(script)))
        monkeypatch.setattr(
            "hush_common.rng.token_bytes",
            lambda count, script=script, taken=taken: bytes(script[next(taken)] for _ in range(count)),
        )
        assert SystemRng().randbelow(1000 * vector["spread"] + 1) == vector["milliseconds"]


def test_a_source_that_is_stuck_gives_no_delay(port: Port) -> None:
    payload = encode_recall(Recall("heights", bytes(32), bytes(16), 60))
    assert port.ask([order(payload, script="ff" * 2000), order(payload, script="-")]) == ["random", "random"]


def test_a_port_keeps_what_was_acknowledged_as_long_as_the_vectors_say(port: Port) -> None:
    def word(number: int | None) -> str:
        return "none" if number is None else str(number)

    orders = [
        f"kept {vector['acknowledged']} {word(vector['closes'])} {vector['keep']} {word(vector['spread'])}"
        for vector in VECTORS["ends"]
    ]
    for vector, outcome in zip(VECTORS["ends"], port.ask(orders), strict=True):
        assert outcome == f"ok {word(vector['until'])}", vector


async def test_the_python_client_keeps_it_as_long(tmp_path: Path) -> None:
    def is_kept(connection: sqlite3.Connection, vector: dict[str, Any], now: int) -> bool:
        closes = None if vector["closes"] is None else 1000 * vector["closes"]
        sequence = outbox.put(connection, "hush/v1/reports/t/d", b"frame", closes=closes)
        outbox.retain(connection, [sequence], "broker", 1000 * vector["acknowledged"])
        grace = {} if vector["spread"] is None else {sequence: 1000 * (300 + 2 * vector["spread"])}
        outbox.expire_retained(
            connection, outbox.RetentionTerm(1000 * now, 1000 * min(vector["keep"], 7 * 86400), grace)
        )
        found = outbox.retained_bytes(connection) > 0
        outbox.drop_oldest(connection, 10**6)
        return found

    state = await DeviceState.open(tmp_path)
    for vector in VECTORS["ends"]:
        end = vector["until"] or 10**10
        kept = [await state.run(partial(is_kept, vector=vector, now=now)) for now in (end - 1, end)]
        assert kept == [vector["keep"] > 0, vector["until"] is None], vector
    await state.close()


@pytest.mark.large
def test_a_port_reads_changed_documents_as_the_python_client(port: Port) -> None:
    source = random.Random(7)  # noqa: S311 - a test wants the same documents every time
    good = VECTORS["good"][0]["payload"].encode()
    payloads = []
    for _ in range(port.share(2500)):
        at, new = source.randrange(len(good) + 1), source.choice([*PIECES, *(source.randbytes(n) for n in range(4))])
        payloads.append(good[:at] + new + good[at + source.randrange(4) :])
    accepted = sum(decode_recall(payload) is not None for payload in payloads)
    assert len(payloads) // 50 < accepted < len(payloads) // 2, "some changes leave a recall"
    for payload, outcome in zip(payloads, port.ask([order(payload) for payload in payloads]), strict=True):
        recall = decode_recall(payload)
        assert outcome.startswith("ok") is (recall is not None), payload
        if recall is not None:
            assert outcome.split()[1:5] == [recall.task, recall.digest.hex(), recall.id.hex(), str(recall.spread)]
