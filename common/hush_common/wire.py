"""Reports, why one is refused, and their wire format, version 2.

A binary frame of one or more reports, and a JSON report that a person can write.

    frame   u8 version = 2 | u8 reserved = 0 | u16 body bytes | 16 bytes task digest | u32 round
            then 1 to 4096 times:  16 bytes report id | body       (big-endian; a body is i64 after i64)
    JSON    {"v":2,"task":"heights","digest":"<32 hex>","round":0,"id":"<32 hex>","body":[571231]}

The digest is the first 16 bytes of SHA-256 over the published task. The length of a frame never depends on a value.
Decoding is total: any bytes give a `Frame` or a `Refusal`.
"""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hush_common.errors import ExplainedEnum
from hush_common.rng import REPORT_ID_BYTES, ReportRng
from hush_common.untrusted import REPORT, read_json

DIGEST_BYTES = 32  # bytes of the digest of a task: a whole SHA-256
REPORT_DIGEST_BYTES = 16  # how many of them a report carries, the first ones


@dataclass(frozen=True, slots=True)
class Report:
    """One perturbed answer to one round of one task."""

    digest: bytes  # the first 16 bytes of the digest of the task
    round: int  # 0 to 2^32 - 1
    id: bytes  # 16 random bytes, by which a redelivery is recognised; they reveal nothing about the device
    body: tuple[int, ...]  # the output of the mechanism, one or more signed 64-bit integers

    @classmethod
    def new(cls, digest: bytes, round_: int, body: tuple[int, ...], rng: ReportRng) -> "Report":
        """Return a report with a fresh random id of 128 bits: a billion reports collide with probability 2e-21."""
        return cls(digest, round_, rng.report_id(), body)


def report_digest_of(digest: bytes) -> bytes:
    """Return the 16 bytes that a report carries of the 32-byte digest of its task."""
    return digest[:REPORT_DIGEST_BYTES]


class Refusal(ExplainedEnum):
    """Reasons for which an aggregator refuses a report. The report is acknowledged, counted here, and not stored."""

    MALFORMED = "malformed", "the payload is not a frame or a JSON report of this protocol"
    UNKNOWN_VERSION = "unknown_version", "the payload declares a protocol version that this aggregator does not support"
    UNKNOWN_TASK = "unknown_task", "no task of that name was published"
    TASK_LIMIT = "task_limit", "its task is published, but no further task found on the broker can be counted"
    BAD_SENDER = "bad_sender", "the topic's sender is not 1 to 128 of A-Z a-z 0-9 . _ @ : -, a letter or digit first"
    WRONG_TOPIC = "wrong_topic", "the report names another task than the topic it came on"
    WRONG_DIGEST = "wrong_digest", "the report answers another version of the task (other bounds, another epsilon)"
    UNKNOWN_ROUND = "unknown_round", "the task has no such round"
    NOT_OPEN = "not_open", "the task, or the round, has not opened yet"
    CLOSED = "closed", "the task is closed"
    OUT_OF_RANGE = "out_of_range", "no device that follows the mechanism can produce this body"
    DUPLICATE = "duplicate", "a report with this id is already counted"
    QUOTA = "quota", "its sender has reached its limit of reports in this round"


HEADER = struct.Struct(f">BBH{REPORT_DIGEST_BYTES}sI")
DIGEST = slice(4, 4 + REPORT_DIGEST_BYTES)  # the bytes of a frame with the digest of its task
VERSION = 2
FRAME_LIMIT = 4096  # most reports in one frame
BODY_LIMIT = 1024  # most integers in one body
_INT64 = range(-(1 << 63), 1 << 63)
_UINT32 = range(1 << 32)
_VERSIONS = range(VERSION, VERSION + 1)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_KEYS = {"v", "task", "digest", "round", "id", "body"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded payload: reports of one task and round. `task` is the name that a JSON report states, else None."""

    reports: tuple[Report, ...]
    task: str | None = None

    @property
    def digest(self) -> bytes:
        return self.reports[0].digest

    @property
    def round(self) -> int:
        return self.reports[0].round


def encode_frame(reports: Sequence[Report]) -> bytes:
    """Return one binary frame of 1 to 4096 reports of the same task, round and body length.

    Raises:
        ValueError: no report or too many, mixed tasks, rounds or body lengths, a wrong length of the digest, or an
            integer outside 64 bits.
    """
    if not 1 <= len(reports) <= FRAME_LIMIT:
        raise ValueError(f"a frame holds 1 to {FRAME_LIMIT} reports, not {len(reports)}")
    first = reports[0]
    width = len(first.body)
    if not 1 <= width <= BODY_LIMIT:
        raise ValueError(f"a body holds 1 to {BODY_LIMIT} integers, not {width}")
    _check_digest(first)
    entry = struct.Struct(f">{REPORT_ID_BYTES}s{width}q")
    parts = [HEADER.pack(VERSION, 0, 8 * width, first.digest, first.round)]
    for report in reports:
        if (report.digest, report.round, len(report.body)) != (first.digest, first.round, width):
            raise ValueError("one frame holds reports of one task, one round and one body length")
        try:
            parts.append(entry.pack(report.id, *report.body))
        except struct.error as error:
            raise ValueError("a body is made of signed 64-bit integers") from error
    return b"".join(parts)


def encode_json(task_id: str, report: Report) -> bytes:
    """Return the JSON form of one report, as one line; ValueError if its digest does not have 16 bytes."""
    _check_digest(report)
    document = {
        "v": VERSION,
        "task": task_id,
        "digest": report.digest.hex(),
        "round": report.round,
        "id": report.id.hex(),
        "body": list(report.body),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _check_digest(report: Report) -> None:
    """`struct` would cut a longer one without an error."""
    if len(report.digest) != REPORT_DIGEST_BYTES:
        raise ValueError(f"a report carries {REPORT_DIGEST_BYTES} bytes of digest, not {len(report.digest)}")


def decode(payload: bytes) -> Frame | Refusal:
    """Decode a payload of either form. Never raises."""
    if payload[:1] != b"{":
        return _decode_frame(payload)
    read = decode_json(payload)
    if isinstance(read, Refusal):
        return read
    task, digest, round_, report_id, body = read
    return Frame((Report(digest, round_, report_id, body),), task)


def _decode_frame(payload: bytes) -> Frame | Refusal:
    width = width_of(payload[: HEADER.size])
    if isinstance(width, Refusal):
        return width
    if not count_of(len(payload), width):
        return Refusal.MALFORMED
    _, _, _, digest, round_ = HEADER.unpack_from(payload)
    entries = struct.Struct(f">{REPORT_ID_BYTES}s{width}q").iter_unpack(memoryview(payload)[HEADER.size :])
    return Frame(tuple(Report(digest, round_, report_id, tuple(body)) for report_id, *body in entries))


def width_of(header: bytes) -> int | Refusal:
    """Return the integers per body that the header of a frame declares, or why it is refused."""
    if header and header[0] != VERSION:
        return Refusal.UNKNOWN_VERSION
    if len(header) < HEADER.size:
        return Refusal.MALFORMED
    _, reserved, body_bytes, _, _ = HEADER.unpack(header)
    width, odd = divmod(body_bytes, 8)
    return Refusal.MALFORMED if reserved or odd or not 1 <= width <= BODY_LIMIT else width


def count_of(length: int, width: int) -> int:
    """Return the reports in a frame of `length` bytes, with its header, and `width` integers per body; 0 if invalid."""
    count, rest = divmod(length - HEADER.size, REPORT_ID_BYTES + 8 * width)
    return count if rest == 0 and 1 <= count <= FRAME_LIMIT else 0


def decode_json(payload: bytes) -> tuple[str, bytes, int, bytes, tuple[int, ...]] | Refusal:
    """Decode a payload that starts with a brace: task, digest, round, id and body of its report. Never raises."""
    try:
        document = read_json(payload, REPORT)
    except ValueError:
        return Refusal.MALFORMED
    if not isinstance(document, dict):
        return Refusal.MALFORMED
    version = document.get("v")
    if type(version) is int and version != VERSION:
        return Refusal.UNKNOWN_VERSION
    if not _is_json_report(document):
        return Refusal.MALFORMED
    digest, report_id = bytes.fromhex(document["digest"]), bytes.fromhex(document["id"])
    return document["task"], digest, document["round"], report_id, tuple(document["body"])


def _is_json_report(document: dict[str, Any]) -> bool:
    """Whether the keys are those of the protocol, each with a value of its type and range."""
    return (
        document.keys() == _KEYS
        and is_int(document["v"], _VERSIONS)
        and isinstance(document["task"], str)
        and is_hex(document["digest"], REPORT_DIGEST_BYTES)
        and is_int(document["round"], _UINT32)
        and is_hex(document["id"], REPORT_ID_BYTES)
        and isinstance(document["body"], list)
        and 1 <= len(document["body"]) <= BODY_LIMIT
        and all(is_int(k, _INT64) for k in document["body"])
    )


def is_hex(text: object, length: int) -> bool:
    """Whether it is text of `length` bytes in hexadecimal digits."""
    return isinstance(text, str) and len(text) == 2 * length and _HEX.fullmatch(text) is not None


def is_int(value: object, allowed: range) -> bool:
    """Whether it is an integer in that range; `True` and 1.0 are not."""
    return type(value) is int and value in allowed
