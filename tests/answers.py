"""An answer of one device, and what it draws for it."""

import sqlite3

from hush_client.privacy.answer import Answer, Question, answer
from hush_common.domain import ParsedValue
from hush_common.rng import ReportRng, SystemRng

__all__ = ["RecordingRng", "answer_one"]


def answer_one(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng, *, device: str = "d"
) -> Answer:
    """Answer for one device alone."""
    return answer(connection, question, {device: value}, rng)[device]


class RecordingRng:
    """The system's randomness, counted."""

    def __init__(self) -> None:
        self.draws = 0

    def randbelow(self, n: int, /) -> int:
        self.draws += 1
        return SystemRng().randbelow(n)

    def token_bytes(self, count: int, /) -> bytes:
        self.draws += 1
        return SystemRng().token_bytes(count)

    def report_id(self) -> bytes:
        return self.token_bytes(16)
