"""A device of a page for `hush conform`: correct, or with one planted fault. It runs until it is killed.

Its own MQTT over a blocking socket, one file as its state; tasks, mechanisms and frames are those of `hush_common`.
"""

import contextlib
import json
import os
import random
import secrets
import select
import socket
import struct
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from hush import Task
from hush_common.domain import Index, ParsedValue
from hush_common.epsilon import decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms.sticky import Memory
from hush_common.recall import decode_recall
from hush_common.rng import SystemRng
from hush_common.task import decode_task, digest_of, task_of_document
from hush_common.topics import recall_topic, report_topic, task_of_recall_topic, task_of_task_topic, task_topic
from hush_common.wire import Report, encode_frame, encode_json, report_digest_of

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
RNG = SystemRng()
IDS = random.Random(7)  # noqa: S311 - of the fault "fixed-ids"
STATE = Path(os.environ["HUSH_STATE"]) / "state.json"
LIMIT = Fraction(os.environ["HUSH_MAX_EPSILON"])
SENDER = os.environ["HUSH_SENDER"]
TASKS = os.environ["HUSH_TASK"].split(",")
HOST, PORT = os.environ["HUSH_BROKER"].removeprefix("mqtt://").split(":")
HOUR = 3600.0


class Device:
    """The whole device: decides, draws, stores, sends."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.version = 5
        self.tasks: dict[str, Task] = {}
        self.refused: set[str] = set()
        self.due: dict[str, float] = {}  # answers to send, by their key
        self.sent: dict[int, str] = {}  # answers in flight, by their packet
        self.packet = 0
        self.buffer = b""
        self.state: dict[str, Any] = {"pins": {}, "spent": {}, "answers": {}, "served": {}, "memories": {}}
        if STATE.exists():
            self.state = json.loads(STATE.read_text())

    def store(self) -> None:
        """Replace the state: it is the old one or the new one, whole."""
        if FAULT == "forgets":
            return
        fresh = STATE.with_suffix(".new")
        fresh.write_text(json.dumps(self.state))  # without fsync: the tests kill it, but cut no power
        fresh.replace(STATE)

    def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):
                self.connect()
                self.serve()
            time.sleep(0.05)

    def connect(self) -> None:
        self.socket = socket.create_connection((HOST, int(PORT)), 5)
        self.buffer, self.sent = b"", {}
        name = (SENDER if FAULT == "one-client-id" else f"{SENDER}-{secrets.token_hex(6)}").encode()
        properties = b"\0" if self.version == 5 else b""
        hello = b"\0\4MQTT" + bytes((self.version, 2)) + struct.pack(">H", 60) + properties
        self.write(0x10, hello + struct.pack(">H", len(name)) + name)
        _, body = self.read()
        if body[1]:
            self.version = 4
            raise EOFError
        for topic in [*map(task_topic, TASKS), *map(recall_topic, TASKS)]:
            filters = struct.pack(">H", len(topic)) + topic.encode() + b"\1"
            self.write(0x82, struct.pack(">H", self.number()) + properties + filters)
        waiting = [key for key, one in self.state["answers"].items() if one["waits"]]
        self.due = dict.fromkeys(waiting, 0.0)
        if FAULT == "never-again":
            self.due = {}
        for key in self.due:
            self.spoil(key)

    def spoil(self, key: str) -> None:
        """Change a report that is sent again, where that is the fault."""
        one = self.state["answers"][key]
        if FAULT == "second-draw" and one["tried"]:
            self.draw(key, self.tasks.get(one["task"]) or decode_task(bytes.fromhex(one["payload"])), one["round"])
        if FAULT == "new-id" and one["tried"]:
            frame = bytes.fromhex(one["frame"])
            one["frame"] = (frame[:24] + secrets.token_bytes(16) + frame[40:]).hex()
            self.store()

    def serve(self) -> None:
        assert self.socket is not None
        while True:
            for task in list(self.tasks.values()):
                self.answer(task)
            now = time.monotonic()
            for key in [key for key, due in self.due.items() if due <= now]:
                self.send(key)
            ready, _, _ = select.select([self.socket], [], [], 0.01)
            if ready:
                self.handle(*self.read())

    def handle(self, head: int, body: bytes) -> None:
        if head >> 4 == 3:
            self.message(head, body)
        elif head >> 4 == 4:
            key = self.sent.pop(int.from_bytes(body[:2], "big"), None)
            if key is not None and (len(body) < 3 or body[2] < 0x80):
                self.acknowledged(key)

    def message(self, head: int, body: bytes) -> None:
        (length,) = struct.unpack_from(">H", body)
        topic, rest = body[2 : 2 + length].decode(), body[2 + length :]
        if head & 2:
            self.write(0x40, rest[:2])
            rest = rest[2:]
        payload = rest[1:] if self.version == 5 else rest
        if (name := task_of_task_topic(topic)) is not None:
            self.learn(name, payload)
        elif (name := task_of_recall_topic(topic)) is not None and not (FAULT == "live-recalls" and head & 1):
            self.recalled(name, payload)

    def learn(self, name: str, payload: bytes) -> None:
        self.tasks.pop(name, None)
        if FAULT == "locked-out" and name in self.refused:
            return
        try:
            task = lenient(payload) if FAULT == "lenient" else decode_task(payload)
        except (TaskError, ValueError):
            self.refused.add(name)
            return
        if task.id == name or FAULT == "lenient":
            self.tasks[name] = replace(task, id=name)

    def answer(self, task: Task) -> None:
        """Decide, and answer the round that is open."""
        now = datetime.now(UTC)
        round_ = (task.current_round(now) or 0) if FAULT == "any-time" else task.current_round(now)
        key, digest = f"{task.id}/{round_}", task.digest.hex()
        pins, spent = self.state["pins"], self.state["spent"]
        if FAULT == "first-round" and round_:
            return
        if round_ is None or (pins.get(task.id, digest) != digest and FAULT != "unpinned"):
            return
        if FAULT == "unpinned" and pins.get(task.id, digest) != digest:
            key += "/again"
        again = FAULT == "twice" and key in self.state["answers"] and f"{key}/again" not in self.state["answers"]
        if again and not self.state["answers"][key]["waits"]:
            key += "/again"
        if key in self.state["answers"]:
            return
        before = Fraction(spent.get(task.purpose, "0"))
        allowed = [
            (offer, before + self.cost(task, epsilon))
            for offer, epsilon in enumerate(task.offers or (task.epsilon,))
            if (epsilon <= LIMIT or FAULT in ("any-epsilon", "any-offer"))
            and (before + self.cost(task, epsilon) <= LIMIT or FAULT in ("any-epsilon", "any-budget", "any-offer"))
        ]
        if not allowed:
            return
        offer, total = allowed[0] if FAULT == "offer-by-value" and not value_text() else allowed[-1]
        pins[task.id], spent[task.purpose] = digest, decimal_text(total)
        self.draw(key, task, round_, offer)
        if key in self.state["answers"]:
            self.due[key] = 0.0

    def cost(self, task: Task, epsilon: Fraction) -> Fraction:
        """Return what one more answer costs. A sticky task is charged once."""
        if task.repeat == "sticky" and FAULT != "sticky-by-round":
            return Fraction(0) if task.id in self.state["memories"] else epsilon
        return epsilon / task.rounds

    def sticky_body(self, task: Task, index: Index | None) -> tuple[int, ...]:
        """Answer from the memory, which is drawn once."""
        assert task.memoized_mechanism is not None
        stored = self.state["memories"].get(task.id)
        if stored is None or FAULT == "redraws":
            memory = Memory.draw(task.memoized_mechanism, RNG)
            self.state["memories"][task.id] = [memory.threshold, memory.reports, memory.substitute]
        else:
            memory = Memory(stored[0], tuple(stored[1]), stored[2])
        return memory.body(task.memoized_mechanism, None if index is None else index.scalar)

    def body(self, task: Task, value: Index | None, index: Index, offer: int) -> tuple[int, ...]:
        if task.repeat == "sticky":
            return self.sticky_body(task, value)
        if FAULT == "wrong-offer" and task.offers:
            return (offer, *task.perturb(index, RNG, 0)[1:])
        return altered(task).perturb(index, RNG, offer)

    def draw(self, key: str, task: Task, round_: int, offer: int = 0) -> None:
        """Read the value, draw the report, and store it with its charge."""
        text = value_text()
        reading = reading_of(task, text)
        index = task.domain.complete(reading, RNG)
        if (FAULT, reading.coercion) in {("drops-outside", "moved"), ("drops-missing", "replaced")}:
            return
        if FAULT == "prints":
            print(text, flush=True)  # noqa: T201
        if FAULT == "slow" and not text:
            time.sleep(1)
        if FAULT == "sign" and len(task.domain.sizes) == 1:
            index = Index(task.domain.sizes[0] - 1 - index.scalar)
        body = self.body(task, None if reading.coercion == "replaced" else index, index, offer)
        digest = report_digest_of(task.digest)
        if FAULT == "own-digest":
            digest = report_digest_of(digest_of(json.dumps(json.loads(task.payload)).encode()))
        identifier = IDS.randbytes(16) if FAULT == "fixed-ids" else secrets.token_bytes(16)
        if FAULT == "no-noise":
            body = (index.scalar,) if task.mechanism == "laplace" and not task.offers else body
        body = (1 << 60, *body[1:]) if FAULT == "body" else body
        report = Report(digest, round_ + (FAULT == "round"), identifier, body)
        as_text = FAULT == "size" and reading.coercion != "used"
        frame = encode_json(task.id, report) if as_text else encode_frame([report])
        frame += b"\0" if FAULT == "frame" else b""
        one = {"task": task.id, "round": round_, "frame": frame.hex(), "waits": True, "tried": False}
        one |= {"payload": task.payload.hex(), "digest": task.digest.hex(), "served": []}
        if FAULT == "stores":
            one["value"] = text
        self.state["answers"][key] = one
        self.store()

    def send(self, key: str) -> None:
        one, number = self.state["answers"][key], self.number()
        one["tried"] = True
        if FAULT in ("second-draw", "new-id"):
            self.store()
        topic = report_topic(one["task"], SENDER) + ("/x" if FAULT == "topic" else "")
        qos, retain = 0 if FAULT == "qos" else 1, FAULT == "retained"
        body = struct.pack(">H", len(topic)) + topic.encode()
        body += (struct.pack(">H", number) if qos else b"") + (b"\0" if self.version == 5 else b"")
        self.sent[number] = key
        del self.due[key]
        self.write(0x30 | qos << 1 | retain, body + bytes.fromhex(one["frame"]))

    def acknowledged(self, key: str) -> None:
        one = self.state["answers"][key]
        one["waits"] = False
        if pending := one.pop("recall", None):
            one["served"].append(pending)
            self.state["served"][one["task"]] = time.time()
        self.store()

    def recalled(self, name: str, payload: bytes) -> None:
        """Send the kept reports of a task once more, the same bytes."""
        recall = decode_recall(payload)
        if FAULT == "any-recall" and recall is None and payload:
            recall = decode_recall(payload.replace(b',"now":1', b"").replace(b'"v":1,"v":1', b'"v":1'))
        last = self.state["served"].get(name, 0.0)
        if recall is None or recall.task != name or (time.time() - last < HOUR and FAULT != "every-recall"):
            return
        for key, one in self.state["answers"].items():
            is_new = recall.id.hex() not in one["served"] or FAULT == "every-recall"
            if one["task"] == name and one["digest"] == recall.digest.hex() and not one["waits"] and is_new:
                if FAULT == "fresh-recall":
                    self.draw(key, self.tasks[name], one["round"])
                self.state["answers"][key] |= {"waits": True, "recall": recall.id.hex()}
                self.due[key] = time.monotonic()
                if FAULT != "at-once":
                    self.due[key] += RNG.randbelow(1000 * recall.spread + 1) / 1000
        self.store()

    def number(self) -> int:
        self.packet = self.packet % 0xFFFF + 1
        return self.packet

    def write(self, head: int, body: bytes) -> None:
        assert self.socket is not None
        encoded, length = bytearray((head,)), len(body)
        while length > 0x7F:
            encoded.append(length & 0x7F | 0x80)
            length >>= 7
        self.socket.sendall(bytes((*encoded, length)) + body)

    def read(self) -> tuple[int, bytes]:
        head = self.take(1)[0]
        length = place = 0
        while True:
            byte = self.take(1)[0]
            length |= (byte & 0x7F) << 7 * place
            place += 1
            if byte < 0x80:
                return head, self.take(length)

    def take(self, count: int) -> bytes:
        assert self.socket is not None
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def value_text() -> str:
    return Path(os.environ["HUSH_VALUE_FILE"]).read_text().removesuffix("\n")


def reading_of(task: Task, text: str) -> ParsedValue:
    reading = task.domain.read(task.domain.parse(text), strict=False)
    return task.domain.nothing if FAULT == "other-is-drawn" and reading.coercion != "used" else reading


def altered(task: Task) -> Task:
    """Return the task whose mechanism a faulty device uses."""
    if FAULT == "twice-epsilon" and not task.offers and task.parameters.coins is None:
        return replace(task, epsilon=2 * task.epsilon)
    if FAULT == "without-coins":
        return replace(task, parameters=replace(task.parameters, coins=None))
    return task


def lenient(payload: bytes) -> Task:
    """Read a task as a careless program does: the last of two keys counts, unknown fields do not."""
    document = json.loads(payload)
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004 - as json
    known = {"id", "purpose", "epsilon", "mechanism", "domain", "rounds", "title"}
    document = {name: value for name, value in document.items() if name in known}
    return replace(task_of_document(document, payload=payload))


if __name__ == "__main__":
    Device().run()
