"""The log of a service, as text and as JSON: the same lines, few of a kind, and none that forges another."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hush_aggregator.logs import Log, LogFormat, fields, logging_to
from hush_common.errors import StoreError

LOG = logging.getLogger("hush.aggregator")
HOSTILE = 'a\n2026-01-01 INFO forged\x1b[2J\x7f\u202e\u2028"} {"event":"forged"'

both = pytest.mark.parametrize("how", LogFormat)


@contextmanager
def logging_as(how: LogFormat) -> Iterator[tuple[io.StringIO, Log]]:
    stream = io.StringIO()
    with logging_to(stream, how) as log:
        yield stream, log


def objects(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_json_has_its_time_event_and_fields() -> None:
    with logging_as(LogFormat.JSON) as (stream, _):
        LOG.warning("%s: refused %d", "heights", 3, extra=fields("refused", task="heights", reason="closed", count=3))
    (line,) = objects(stream)
    assert str(line.pop("time")).endswith("Z")
    about = {"event": "refused", "task": "heights", "reason": "closed", "count": 3, "message": "heights: refused 3"}
    assert line == {"level": "warning", "logger": "hush.aggregator", **about}


@both
def test_hostile_text_is_one_printable_line(how: LogFormat) -> None:
    with logging_as(how) as (stream, _):
        LOG.info("%s says hello", HOSTILE, extra=fields("hello", task=HOSTILE))
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if how is LogFormat.JSON:
        (line,) = objects(stream)
        assert (line["event"], line["task"]) == ("hello", HOSTILE)


@both
def test_at_most_50_lines_of_a_kind_a_minute_and_the_rest_is_a_number(how: LogFormat) -> None:
    with logging_as(how) as (stream, log):
        for number in range(200):
            LOG.warning("task %s: trouble", f"t{number}")
        LOG.info("another kind")
        log.turn()
        LOG.warning("task %s: trouble", "after")
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if "t49: trouble" in line]
    assert not [line for line in lines if "t50: trouble" in line]
    assert [line for line in lines if "150" in line]
    assert [line for line in lines if "another kind" in line]
    assert "after" in lines[-1]


@pytest.mark.medium
def test_kinds_without_end_have_one_limit_together() -> None:
    with logging_as(LogFormat.JSON) as (stream, _):
        for number in range(3000):
            LOG.warning(f"made up {number}")  # noqa: G004 - so that each is a kind
    assert len(objects(stream)) < 1500


@both
def test_an_error_is_logged_without_its_message_and_no_login_either(how: LogFormat) -> None:
    with logging_as(how) as (stream, _):
        try:
            float("172.25 cm")
        except ValueError:
            LOG.exception("it failed")
        LOG.info("connected to %s", "mqtt://alice:secret@host")
    text = stream.getvalue()
    assert "ValueError in test_logs.py" in text
    assert "172.25" not in text  # the time may have 172
    assert "secret" not in text
    assert text.count("\n") == 2


def test_lines_that_follow_from_reports_wait_for_a_full_minute() -> None:
    now, stream = [1_000_000.0], io.StringIO()
    log = Log(stream, LogFormat.JSON, now=lambda: now[0])
    record = logging.LogRecord("hush.aggregator", logging.WARNING, "", 0, "a slow estimate", None, None)
    record.__dict__ |= fields("estimate_trouble", held=True, task="heights")
    record.created = 999_999.0
    log.handle(record)
    assert not stream.getvalue()
    now[0] = 1_000_020.0
    log.turn()
    (line,) = objects(stream)
    assert line["time"] == "1970-01-12T13:47:00Z"


def test_an_error_that_ends_a_service_is_logged_as_its_format() -> None:
    stream = io.StringIO()
    with pytest.raises(SystemExit) as ended, logging_to(stream, LogFormat.JSON):
        raise StoreError("no room")
    assert ended.value.code == StoreError.exit_code
    (line,) = objects(stream)
    assert (line["event"], line["level"], line["message"]) == ("ended", "critical", "no room")
    with pytest.raises(StoreError), logging_to(sys.stderr, LogFormat.TEXT):
        raise StoreError("no room")
