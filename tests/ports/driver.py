"""Speaks for hush_micropython.py in tests, as driver.c does for hush.c: the orders and outcomes are described there."""
# ruff: noqa: T201 - printing is its job

import binascii
import sys

sys.path.insert(0, sys.argv[1] + "/ports/micropython")

import hush_micropython as hush


class Script(hush.SystemRandom):
    """Scripted bytes, in tests alone."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def token_bytes(self, count: int) -> bytes:
        if len(self.data) - self.at < count:
            raise hush.HushError("random", "the script ends")
        self.at += count
        return self.data[self.at - count : self.at]


def plain(text: str) -> bytes:
    return b"" if text == "-" else binascii.unhexlify(text)


def hexadecimal(data: bytes) -> str:
    return binascii.hexlify(data).decode()


def integers(text: str) -> list[int]:
    """64-bit integers, big-endian."""
    data = plain(text)
    raw = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
    return [value - (1 << 64) if value >> 63 else value for value in raw]


def facts(task: hush.Task, report: hush.Report, sender: str, rng: Script) -> str:
    topic = hush.report_topic(task.id, sender)
    frame = hush.encode_frame(report.digest, report.round, [(report.id, report.body)])
    json = hush.encode_json(task.id, report.digest, report.round, report.id, report.body)
    left, body = str(len(rng.data) - rng.at), ",".join([str(k) for k in report.body])
    words = [hexadecimal(task.digest), hexadecimal(report.id), body, report.value, left, topic]
    return " ".join(words) + " " + hexadecimal(frame) + " " + json.decode()


def given(word: str) -> "str | None":
    return None if word == "none" else plain(word).decode()


def answer(words: list[str]) -> str:
    most, now, sender, value, payload, script = words
    task, rng = hush.read_task(plain(payload), most), Script(plain(script))
    memory = hush.draw_memory(task, rng) if task.repeat == "sticky" else None
    return facts(task, hush.answer(task, given(value), int(now), rng, -1, memory), sender, rng)


def decide(words: list[str]) -> str:
    most, now, payload = words
    task = hush.read_task(plain(payload), most)
    round_, offer = hush.current_round(task, int(now)), hush.largest_offer(task)
    return str(round_) + " " + str(offer) + " " + "/".join([str(part) for part in hush.offer_cost(task, offer)])


def sticky(words: list[str]) -> str:
    most, sender, payload, script = words[:4]
    task, rng = hush.read_task(plain(payload), most), Script(plain(script))
    memory, found = hush.draw_memory(task, rng), []
    for at in range(4, len(words), 2):
        report = hush.answer(task, given(words[at + 1]), int(words[at]), rng, -1, memory)
        found.append(facts(task, report, sender, rng))
    return " | ".join(found)


def frame(words: list[str]) -> str:
    round_, width, _, digest, ids, bodies = words
    data, values, size = plain(ids), integers(bodies), int(width)
    names = [data[at : at + 16] for at in range(0, len(data), 16)]
    reports = [(name, values[size * i : size * (i + 1)]) for i, name in enumerate(names)]
    return hexadecimal(hush.encode_frame(plain(digest), int(round_), reports))


def json(words: list[str]) -> str:
    round_, _, task, digest, report_id, body = words
    return hush.encode_json(task, plain(digest), int(round_), plain(report_id), integers(body)).decode()


def topic(words: list[str]) -> str:
    _, task, sender = words
    return hush.report_topic(plain(task).decode(), plain(sender).decode())


def sample(words: list[str]) -> str:
    count, index, payload = words
    task = hush.read_task(plain(payload), "50")
    return " ".join([str(hush.perturb(task, [int(index)], 0, FILE)[0]) for _ in range(int(count))])


def recall(words: list[str]) -> str:
    payload, frame, script = words
    found = hush.read_recall(plain(payload))
    if found is None:
        raise hush.HushError("malformed", "no recall")
    asked = "yes" if hush.is_recalled(found, "heights", plain(frame)) else "no"
    delay = hush.recall_delay(found, Script(plain(script)))
    facts = [found.task, hexadecimal(found.digest), hexadecimal(found.id), str(found.spread), asked, str(delay)]
    return " ".join(facts) + " " + hush.recall_topic(found.task)


def kept(words: list[str]) -> str:
    acknowledged, closes, keep, spread = words
    scheduled = None
    if spread != "none":
        scheduled = hush.Recall()
        scheduled.spread = int(spread)
    until = hush.kept_until(int(acknowledged), None if closes == "none" else int(closes), int(keep), scheduled)
    return "none" if until is None else str(until)


def read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - MicroPython has no pathlib
        return file.read()


FILE = Script(read(sys.argv[2]) if len(sys.argv) > 2 else b"")
ORDERS = {
    "answer": answer,
    "decide": decide,
    "sticky": sticky,
    "frame": frame,
    "json": json,
    "topic": topic,
    "sample": sample,
    "recall": recall,
    "kept": kept,
}


def respond(line: str) -> None:
    """Carry out an order, and print its outcome."""
    words = line.split()
    try:
        print("ok", ORDERS[words[0]](words[1:]))
    except hush.HushError as error:
        print(error.status)


if __name__ == "__main__":
    for order in sys.stdin:
        respond(order)
