"""Whoever sets the clock of an aggregator back wants every report acknowledged and dropped.

Whoever forges estimates of tomorrow wants it to mistrust a clock that is right.
"""

import asyncio
import json
import re
import secrets
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from counting import refused, shell
from scripted_broker import ScriptedBroker
from servers import Mosquitto

from hush_aggregator import Aggregator, MqttBroker, SqliteStore
from hush_aggregator.delivery.closing import MADE, ClockCheck
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task
from hush_common.topics import estimate_topic
from hush_common.wire import Report, encode_frame, encode_json

DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
HEIGHTS = make_task({**DOCUMENT, "opens": "2026-01-01T00:00:00Z"})
LONG_AGO, LATELY = datetime(2020, 5, 17, 12, tzinfo=UTC), datetime(2031, 5, 17, 12, tzinfo=UTC)


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_reports_wait_unacknowledged_until_the_clock_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [LONG_AGO]
    bus = ScriptedBroker(retained={})
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = ClockCheck(store, now=lambda: now[-1])
        counting = Aggregator(
            bus, store, tasks=(HEIGHTS,), clock=lambda: now[-1], settle_s=0, ready=clock.wait_until_plausible
        )
        aggregator = asyncio.create_task(counting.run())
        for _ in range(50):
            payload = encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,))])
            bus.send("hush/v1/reports/heights/device", payload)
        await asyncio.sleep(3600)
        assert bus.acknowledged == 0
        assert all(word in caplog.text for word in ("2020-05-17", str(MADE), "--accept-clock"))
        now.append(datetime(2026, 12, 24, 12, tzinfo=UTC))
        await bus.emptied()
        aggregator.cancel()
        with suppress(asyncio.CancelledError):
            await aggregator
        assert store.tally(HEIGHTS.digest, 0).n == 50
        assert store.refusals("heights") == {}


def test_the_store_remembers_the_newest_day_and_nothing_finer(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = ClockCheck(store, now=lambda: LATELY)
        assert store.newest_day is None
        clock.note()
        assert store.newest_day == LATELY.date()
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        back = ClockCheck(store, now=lambda: LATELY - timedelta(days=1))
        assert all(day in str(back.problem()) for day in ("2031-05-16", "2031-05-17"))
        back.note()
        assert store.newest_day == LATELY.date()


def test_a_clock_that_was_ahead_is_forgotten_on_request(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.note_day(date(2099, 1, 1))
        assert ClockCheck(store, now=lambda: LATELY).problem()
        assert ClockCheck(store, now=lambda: LATELY, accept=True).problem() is None
        assert ClockCheck(store, now=lambda: LATELY).problem() is None
        assert ClockCheck(store, now=lambda: LONG_AGO, accept=True).problem() is None


def test_a_clock_set_back_while_the_service_runs_is_noticed(tmp_path: Path) -> None:
    times = [LATELY]
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = ClockCheck(store, now=lambda: times[0])
        clock.note()
        times[0] = LONG_AGO
        assert "2031-05-17" in str(clock.problem())


@pytest.mark.virtual_time
async def test_a_service_that_runs_stores_each_new_day_within_an_hour(tmp_path: Path) -> None:
    times = [LATELY]
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        noting = asyncio.create_task(ClockCheck(store, now=lambda: times[0]).run())
        for days in range(3):
            times[0] = LATELY + timedelta(days=days)
            await asyncio.sleep(3601)
            assert store.newest_day == times[0].date()
        noting.cancel()
        with suppress(asyncio.CancelledError):
            await noting


def estimate(updated_at: str) -> bytes:
    return json.dumps({"task": "heights", "updated_at": updated_at, "v": 1}, separators=(",", ":")).encode()


def test_an_estimate_of_tomorrow_is_told_once_and_decides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = ClockCheck(store, now=lambda: LATELY)
        for of_before in ("2031-05-17T12:00:00Z", "2031-05-17T12:05:00Z", "2031-05-17T14:04:00+02:00"):
            clock.look_at(estimate(of_before))
        for nonsense in (b"", b"\xff", b"[]", b'{"updated_at":"9999"}', b'{"updated_at":"0001-01-01T00:00:00+23:59"}'):
            clock.look_at(nonsense)
        assert caplog.messages == []
        clock.look_at(estimate("2031-05-17T12:05:01Z"))
        clock.look_at(estimate("2031-05-18T12:00:00Z"))
        assert len(caplog.messages) == 1
        assert "2031-05-17T12:05:01+00:00" in caplog.text
        assert clock.problem() is None


def test_no_forged_text_reaches_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        clock = ClockCheck(store, now=lambda: LATELY)
        clock.look_at(b'{"updated_at":"2999-01-01T00:00:00Z\x1b[2J\n"}')
        clock.look_at(b'{"updated_at":"2999-01-01T00:00:00Z","task":"\x1b[2J"}')
    (told,) = caplog.messages
    assert told.isprintable()


@pytest.mark.medium
@pytest.mark.parametrize("readable", [True, False])
async def test_retained_estimates_are_seen_and_counted_never(
    mosquitto: Mosquitto, tmp_path: Path, *, readable: bool
) -> None:
    forged = estimate("2999-01-01T00:00:00Z")
    shell("mosquitto_pub", mosquitto.port, "-t", estimate_topic("heights"), "-r", "-m", forged.decode())
    if not readable:
        rules = mosquitto.directory / "rules"
        rules.write_text("topic readwrite hush/v1/tasks/+\ntopic readwrite hush/v1/reports/#\ntopic write hush/v1/#\n")
        mosquitto.stop()
        mosquitto.access += f"\nacl_file {rules}"
        mosquitto.start()
    seen: list[bytes] = []
    bus = MqttBroker(BrokerUrl.parse(mosquitto.url), "hush-aggregator-test", kept=True)
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        for _ in range(2):
            aggregator = Aggregator(bus, store, tasks=(HEIGHTS,), on_estimate=seen.append)
            running = asyncio.create_task(aggregator.run())
            for number in range(2):
                report = encode_json("heights", Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,)))
                before = store.tally(HEIGHTS.digest, 0).n
                topic = f"hush/v1/reports/heights/d{number}"
                async with asyncio.timeout(60):
                    while store.tally(HEIGHTS.digest, 0).n == before:
                        await asyncio.to_thread(
                            shell, "mosquitto_pub", mosquitto.port, "-q", "1", "-t", topic, "-m", report.decode()
                        )
                        await asyncio.sleep(0.05)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        assert set(seen) == ({forged} if readable else set())
    assert refused(tmp_path / "hush.sqlite").keys() <= {"duplicate"}


def test_no_release_is_newer_than_the_day_that_is_known_to_have_been() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## .*?(\d{4}-\d{2}-\d{2})\s*$", text, re.MULTILINE)
    assert "\n## " in text
    assert max(map(date.fromisoformat, released), default=MADE) <= MADE
    assert datetime.now(UTC).date() >= MADE, "or no clock that is right would do"
