"""Logs of a service, as text or as JSON objects with the same content."""

# No line shows when a single report came: lines that follow from reports are held until the turn of a minute. Each kind
# of line is limited per minute. Nothing can forge a line or write to a terminal: unprintable characters are escaped.

import asyncio
import json
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NoReturn, TextIO

from hush_common.errors import HushError, printable

LogFields = Mapping[str, str | int | Mapping[str, int]]


def fields(event: str, *, held: bool = False, **known: str | int | Mapping[str, int] | None) -> dict[str, object]:
    """Return the argument `extra` of a call of `logging`: one word for the event, and what else is known, without None.

    A line that follows from reports is `held` until the turn of the minute, so that it does not show when one came.
    """
    given = {name: value for name, value in known.items() if value is not None}
    return {"hush": {"event": event, **given}, "hush_held": held}


_TURN_S = 60.0
_OF_A_KIND = 50  # lines between two turns
_MOST_KINDS = 500  # further ones share a limit; hush itself has about fifty
_LONGEST = 2000  # letters of a message
_HELD_LOGGERS = ("hush_common.mqtt.packets",)  # logs single messages, and shares no code with the aggregator


class LogFormat(StrEnum):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"


class Log(logging.Handler):
    """Writes lines, and holds back those about a single report until the next `turn`."""

    def __init__(self, stream: TextIO, how: LogFormat, *, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._stream = stream
        self._how = how
        self._now = now
        self._lines: Counter[tuple[str, str]] = Counter()  # since the last turn, by logger and kind
        self._held: list[logging.LogRecord] = []

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(_TURN_S)
            self.turn()

    def turn(self) -> None:
        """Write the held lines, and how many were left out."""
        self.acquire()
        try:
            held, self._held = self._held, []
            for record in held:
                record.created, record.msecs = self._now(), 0.0
                self._write(record)
            for (logger, kind), count in self._lines.items():
                if count > _OF_A_KIND:
                    self._write(_left_out(logger, kind, count - _OF_A_KIND, self._now()))
            self._lines.clear()
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_over_limit(record):
                return
            if getattr(record, "hush_held", False) or record.name in _HELD_LOGGERS:
                self._held.append(record)
            else:
                self._write(record)
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written does not end the service
            self.handleError(record)

    def _is_over_limit(self, record: logging.LogRecord) -> bool:
        kind = record.name, str(record.msg)
        if kind not in self._lines and len(self._lines) >= _MOST_KINDS:
            kind = "", "(others)"
        self._lines[kind] += 1
        return self._lines[kind] > _OF_A_KIND

    def _write(self, record: logging.LogRecord) -> None:
        self._stream.write((_as_text if self._how is LogFormat.TEXT else _as_json)(record) + "\n")
        self._stream.flush()


@contextmanager
def logging_to(stream: TextIO, how: LogFormat) -> Iterator[Log]:
    """Write what this process logs, from INFO on, during the block; held lines at its end."""
    log, root = Log(stream, how), logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    root.addHandler(log)
    try:
        yield log
    except HushError as error:
        if how is LogFormat.TEXT:
            raise
        logging.getLogger("hush.aggregator").critical("%s", error, extra=fields("ended"))
        raise SystemExit(error.exit_code) from error  # logged already, as JSON
    finally:
        root.removeHandler(log)
        root.setLevel(before)
        log.turn()


def _as_text(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
    error = _error(record)
    return f"{moment} {record.levelname} {_message(record)}{f' ({error})' if error else ''}"


def _as_json(record: logging.LogRecord) -> str:
    said: LogFields = getattr(record, "hush", {"event": "message"})
    line = {
        "time": datetime.fromtimestamp(int(record.created), UTC).isoformat().replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        **said,
        "message": _message(record),
    }
    if error := _error(record):
        line["error"] = error
    return json.dumps(line).replace("\x7f", "\\u007f")  # all else that is not printable JSON escapes itself


def _message(record: logging.LogRecord) -> str:
    text = printable(record.getMessage())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _error(record: logging.LogRecord) -> str:
    """The exception's type and place. Never its message, which may hold values of reports."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    places = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    return f"{type(error).__name__}{where}"


def _left_out(logger: str, kind: str, count: int, now: float) -> logging.LogRecord:
    record = logging.LogRecord(
        logger, logging.WARNING, "", 0, "%d more lines like this were left out: %s", (count, kind), None
    )
    record.created = now
    record.__dict__ |= fields("left_out", count=count)
    return record
