"""Whoever reads the log of an aggregator wants to know when a single report came."""

import asyncio
import io
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from leftovers import collect_leftovers
from scripted_broker import ScriptedBroker
from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import Aggregator, Estimate, SqliteStore
from hush_aggregator.count.intake import Progress, admit, decode, receive
from hush_aggregator.estimate.process import Failure, ThreadEstimator
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.logs import LogFormat, logging_to
from hush_aggregator.store import CommitOutcome
from hush_common.task import make_task
from hush_common.topics import Delivery
from hush_common.wire import Refusal, Report, encode_frame, encode_json

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


class Failing(ThreadEstimator):
    """Makes no estimate of reports: what is told of it follows from the first report."""

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        return Failure("failed", "by itself") if tally.n else await super().__call__(task, tally, confidence)


@pytest.fixture
def run(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    caplog.set_level(logging.INFO)
    with closing(VirtualLoop()) as loop:
        yield lambda story: loop.run_until_complete(story())


def accepted(count: int) -> CommitOutcome:
    return CommitOutcome(count, {}, frozenset({"heights"}), counted={"heights": count})


@pytest.mark.parametrize("minute", [0.5, 3.0, 9.9])
def test_the_log_is_the_same_whenever_a_report_came(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture, minute: float
) -> None:
    told: list[tuple[float, str]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        progress = Progress()
        telling = asyncio.create_task(progress.run())
        await asyncio.sleep(60 * minute)
        progress.add(accepted(1))
        for now in range(40):
            await asyncio.sleep(60 * (now + 11) - loop.time())
            told.extend((round(loop.time()), text) for text in caplog.messages)
            caplog.clear()
        telling.cancel()
        progress.stop()
        told.extend((0, text) for text in caplog.messages)

    run(story)
    assert told == [(0, "accepted 1 since the start")]


def test_many_are_told_at_ten_minutes_counted_from_the_start(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        progress = Progress()
        telling = asyncio.create_task(progress.run())
        for _ in range(100):
            progress.add(accepted(2))
            await asyncio.sleep(3)
        before = list(caplog.messages)
        await asyncio.sleep(301)
        telling.cancel()
        assert not before

    run(story)
    assert caplog.messages == ["accepted 200"]


def test_refusals_are_told_once_a_minute_by_task_reason_and_sender(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        progress = Progress()
        telling = asyncio.create_task(progress.run())
        key = ("heights", Refusal.WRONG_DIGEST)
        for sender in ["a\x1b[2J", "a\x1b[2J", "b"] * 10:
            progress.add(CommitOutcome(0, {Refusal.WRONG_DIGEST: 3}, frozenset(), {key: 3}, {key: sender}))
            if len(caplog.messages) == 0 and sender == "b":
                await asyncio.sleep(61)
        telling.cancel()

    run(story)
    assert caplog.messages == ["heights: refused 9: wrong_digest, " + Refusal.WRONG_DIGEST.meaning]


def test_only_a_single_sender_of_refused_reports_is_named(
    tmp_path: Path, run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    other = Report(b"sixteen bytes...", 0, secrets.token_bytes(16), (1,))
    far = Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1 << 60,))
    good = Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,))

    def at(sender: str, payload: bytes) -> Delivery:
        return Delivery(f"hush/v1/reports/heights/{sender}", payload)

    batch = [
        at("mallory", encode_frame([other])),
        at("mallory", b"{"),
        at("m\n", b"\x09"),
        at("a", encode_frame([good])),
    ]
    batch += [at("j", encode_json("heights", far)), at("k", encode_json("heights", far))]
    judged = admit(decode(receive(batch).reports), {"heights": HEIGHTS}, datetime.now(UTC))
    assert judged.senders == {
        ("heights", Refusal.WRONG_DIGEST): "mallory",
        ("heights", Refusal.MALFORMED): "mallory",
        ("heights", Refusal.BAD_SENDER): "m\n",
        ("heights", Refusal.OUT_OF_RANGE): None,
    }

    async def story() -> None:
        progress = Progress()
        with SqliteStore(tmp_path / "hush.sqlite") as store:
            outcome = store.commit(judged.accepted, judged.refused)
        progress.add(CommitOutcome(outcome.accepted, outcome.refused, outcome.changed, outcome.details, judged.senders))
        progress.stop()

    run(story)
    assert {text.partition(": ")[2].partition(",")[0] for text in caplog.messages[:-1]} == {
        "refused 2: out_of_range",
        "refused 1 from 'm\\n': bad_sender",
        "refused 1 from 'mallory': malformed",
        "refused 1 from 'mallory': wrong_digest",
    }
    assert caplog.messages[-1] == "accepted 1 since the start"


@pytest.mark.medium
@pytest.mark.parametrize("how", LogFormat)
def test_no_line_of_a_whole_aggregator_says_when_in_a_minute_a_report_came(tmp_path: Path, how: LogFormat) -> None:
    """All that is written, second by second, whether the report comes early or late in a minute."""

    collect_leftovers()

    def written(delay: float, name: str) -> list[tuple[int, str]]:
        with closing(VirtualLoop()) as loop, SqliteStore(tmp_path / f"{how}-{name}") as store:
            told: list[tuple[int, str]] = []

            class Stream(io.StringIO):
                def write(self, text: str) -> int:
                    told.append((round(loop.time()), re.sub(r"20\d\d-[0-9T: Z-]+", "", text)))
                    return len(text)

            async def story() -> None:
                bus, progress = ScriptedBroker(retained={}), Progress()
                with logging_to(Stream(), how) as log:
                    aggregator = Aggregator(bus, store, tasks=[HEIGHTS], on_commit=progress.add, estimator=Failing())
                    work = [asyncio.create_task(run) for run in (aggregator.run(), progress.run(), log.run())]
                    await asyncio.sleep(delay)
                    report = Report(HEIGHTS.report_digest, 0, bytes(range(16)), (1,))
                    bus.send("hush/v1/reports/heights/a", encode_frame([report]), b"\x09")
                    await asyncio.sleep(900 - delay)
                    for task in work:
                        task.cancel()
                    await asyncio.wait(work)
                    progress.stop()

            loop.run_until_complete(story())
            return sorted(told)

    early, late = written(5.0, "early"), written(50.0, "late")
    assert early == late
    assert any("no estimate" in text for _, text in early)  # it was held back, and is told
    assert any("unknown_version" in text for _, text in early)
