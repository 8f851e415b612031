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


@contextmanager
def logging_as(how: LogFormat) -> Iterator[tuple[io.StringIO, Log]]:
    stream = io.StringIO()
    with logging_to(stream, how) as log:
        yield stream, log


def objects(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_json_says_when_what_and_of_which_task() -> None:
    with logging_as(LogFormat.JSON) as (stream, _):
        LOG.warning("%s: refused %d", "heights", 3, extra=fields("refused", task="heights", reason="closed", count=3))
    (line,) = objects(stream)
    assert str(line.pop("time")).endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "hush.aggregator",
        "event": "refused",
        "task": "heights",
        "reason": "closed",
        "count": 3,
        "message": "heights: refused 3",
    }


@pytest.mark.parametrize("how", LogFormat)
def test_hostile_text_is_one_line_of_letters_that_can_be_printed(how: LogFormat) -> None:
    with logging_as(how) as (stream, _):
        LOG.info("%s says hello", HOSTILE, extra=fields("hello", task=HOSTILE))
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if how is LogFormat.JSON:
        (line,) = objects(stream)
        assert (line["event"], line["task"]) == ("hello", HOSTILE)


@pytest.mark.parametrize("how", LogFormat)
def test_lines_of_a_kind_are_few_and_the_rest_is_a_number(how: LogFormat) -> None:
    with logging_as(how) as (stream, log):
        for number in range(200):
            LOG.warning("task %s: somebody else has written its recall", f"t{number}")
        LOG.info("another kind")
        log.turn()
        LOG.warning("task %s: somebody else has written its recall", "after")
    lines = stream.getvalue().splitlines()
    assert sum("written its recall" in line for line in lines) == 50 + 1 + 1
    assert sum("150 more lines like this were left out" in line for line in lines) == 1
    assert "another kind" in stream.getvalue()
    assert "after" in lines[-1]


def test_kinds_that_somebody_makes_up_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_aggregator.logs._MOST_KINDS", 5)
    with logging_as(LogFormat.JSON) as (stream, log):
        for number in range(1000):
            LOG.warning(f"made up {number}")  # noqa: G004 - so that each is a kind
        assert len(log._lines) <= 6
    assert len(objects(stream)) == 5 + 50 + 1


@pytest.mark.parametrize("how", LogFormat)
def test_what_was_raised_is_told_without_what_it_said(how: LogFormat) -> None:
    with logging_as(how) as (stream, _):
        try:
            float("172.25 cm")
        except ValueError:
            LOG.exception("it failed")
    text = stream.getvalue()
    assert "ValueError in test_logs.py, line " in text
    assert "172.25" not in text  # the time may have 172
    assert text.count("\n") == 1


@pytest.mark.parametrize("how", LogFormat)
def test_no_login_stands_in_a_line(how: LogFormat) -> None:
    with logging_as(how) as (stream, _):
        LOG.info("connected to %s", "mqtt://alice:secret@host")
    assert "secret" not in stream.getvalue()


def test_what_follows_from_reports_waits_for_the_turn_of_the_minute() -> None:
    now = [1_000_000.0]
    stream = io.StringIO()
    log = Log(stream, LogFormat.JSON, now=lambda: now[0])
    record = logging.LogRecord("hush.aggregator", logging.WARNING, "", 0, "its estimate is slow", None, None)
    record.__dict__ |= fields("estimate_trouble", held=True, task="heights")
    record.created = 999_999.0
    log.handle(record)
    assert not stream.getvalue()
    now[0] = 1_000_020.0
    log.turn()
    (line,) = objects(stream)
    assert line["time"] == "1970-01-12T13:47:00Z"


def test_the_end_of_a_service_is_an_object_too() -> None:
    stream = io.StringIO()
    with pytest.raises(SystemExit) as ended, logging_to(stream, LogFormat.JSON):
        raise StoreError("the disk is full")
    assert ended.value.code == StoreError.exit_code
    (line,) = objects(stream)
    assert (line["event"], line["level"], line["message"]) == ("ended", "critical", "the disk is full")
    with pytest.raises(StoreError), logging_to(sys.stderr, LogFormat.TEXT):
        raise StoreError("the disk is full")


def test_nothing_is_left_behind() -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with logging_as(LogFormat.JSON):
        pass
    assert (root.level, root.handlers) == before
