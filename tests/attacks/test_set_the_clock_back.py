"""Whoever sets the clock of an aggregator back wants every report acknowledged and dropped."""

import asyncio
import secrets
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from fake_bus import FakeBus

from hush_aggregator.clock import MADE, CheckedClock
from hush_aggregator.pipeline import Aggregator
from hush_aggregator.store import SqliteStore
from hush_common.codec import encode_frame
from hush_common.report import Report
from hush_common.task_file import make_task

DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
HEIGHTS = make_task({**DOCUMENT, "opens": "2026-01-01T00:00:00Z"})
LONG_AGO, LATELY = date(2020, 5, 17), date(2031, 5, 17)


async def test_reports_wait_unacknowledged_until_the_clock_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.clock._LOOK_EVERY_S", 0.01)
    now = [datetime(2020, 5, 17, 12, tzinfo=UTC)]
    bus = FakeBus()

    def today() -> date:
        return now[-1].date()

    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = CheckedClock(store, today=today)
        counting = Aggregator(bus, store, tasks=(HEIGHTS,), clock=lambda: now[-1], settle_s=0, ready=clock.right)
        aggregator = asyncio.create_task(counting.run())
        for _ in range(50):
            payload = encode_frame([Report(HEIGHTS.digest, 0, secrets.token_bytes(16), (1,))])
            bus.send("hush/v1/reports/heights/device", payload)
        async with asyncio.timeout(20):
            while "--accept-clock" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert bus.waiting == 50
        assert f"the clock says 2020-05-17, but this hush was made after {MADE}" in caplog.text
        now.append(datetime(2026, 12, 24, 12, tzinfo=UTC))
        await bus.emptied()
        aggregator.cancel()
        with suppress(asyncio.CancelledError):
            await aggregator
        assert store.tally(HEIGHTS.digest, 0).n == 50
        assert store.refusals("heights") == {}


def test_the_store_remembers_the_newest_day_and_nothing_finer(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = CheckedClock(store, today=lambda: LATELY)
        assert store.newest_day is None
        clock.note()
        assert store.newest_day == LATELY
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        back = CheckedClock(store, today=lambda: LATELY - timedelta(days=1))
        assert back.wrong() == "the clock says 2031-05-16, but this store was in use on 2031-05-17"
        back.note()
        assert store.newest_day == LATELY


def test_a_clock_that_was_ahead_is_forgotten_when_the_present_one_is_accepted(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.note_day(date(2099, 1, 1))
        assert CheckedClock(store, today=lambda: LATELY).wrong()
        assert CheckedClock(store, today=lambda: LATELY, accept=True).wrong() is None
        assert CheckedClock(store, today=lambda: LATELY).wrong() is None
        assert CheckedClock(store, today=lambda: LONG_AGO, accept=True).wrong() is None


def test_a_clock_set_back_while_the_service_runs_is_noticed(tmp_path: Path) -> None:
    days = [LATELY]
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = CheckedClock(store, today=lambda: days[0])
        clock.note()
        days[0] = LONG_AGO
        assert "this store was in use on 2031-05-17" in str(clock.wrong())
