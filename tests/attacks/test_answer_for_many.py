"""Whoever has the password of one device wants to move the estimate by as many reports as it likes."""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.store import CommitOutcome, Limits, quota_file
from hush_aggregator.store.base import UNKNOWN
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json

pytestmark = pytest.mark.medium

HEIGHTS = make_task(
    {"id": "heights", "epsilon": "1", "enrolled": 60, "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}
)
TOP = 1 << 20


def made_up(count: int, body: int = TOP) -> list[Report]:
    return [Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (body,)) for _ in range(count)]


@asynccontextmanager
async def counting(
    path: Path, limits: Limits | None
) -> AsyncIterator[tuple[ScriptedBroker, SqliteStore, list[CommitOutcome]]]:
    """An aggregator at a broker in memory, and what it commits."""
    outcomes: list[CommitOutcome] = []
    bus = ScriptedBroker(retained={})
    with SqliteStore(path, limits) as store:
        aggregator = asyncio.create_task(Aggregator(bus, store, tasks=(HEIGHTS,), on_commit=outcomes.append).run())
        await bus.up.wait()
        yield bus, store, outcomes
        await bus.emptied()
        aggregator.cancel()
        with suppress(asyncio.CancelledError):
            await aggregator


def send_all(bus: ScriptedBroker) -> None:
    """9000 reports at the upper bound from one device, in 18 messages among those of 50 honest ones and a gateway."""
    flood = [encode_frame(made_up(500)) for _ in range(18)]
    for number in range(50):
        bus.send(report_topic("heights", f"device-{number}"), encode_frame(made_up(1, TOP // 2)))
        if number % 3 == 0:
            bus.send(report_topic("heights", "evil"), flood[number // 3])
    bus.send(report_topic("heights", "evil"), *flood[17:], *(encode_json("heights", one) for one in made_up(3)))
    bus.send(report_topic("heights", "gateway"), encode_frame(made_up(10, TOP // 2)))


async def test_one_sender_moves_it_by_its_quota_and_no_further(tmp_path: Path) -> None:
    async with counting(tmp_path / "store", Limits(2, {"gateway": 10})) as (bus, store, outcomes):
        send_all(bus)
        await bus.emptied()
        tally = store.tally(HEIGHTS.digest, 0)
        assert (tally.n, tally.moments[0]) == (62, 2 * TOP + 60 * (TOP // 2))
        assert store.refusals("heights") == {Refusal.QUOTA: 9001}
        assert {name for outcome in outcomes for name in outcome.senders.values()} == {"evil"}


async def test_without_a_quota_it_moves_it_as_far_as_it_likes(tmp_path: Path) -> None:
    async with counting(tmp_path / "store", None) as (bus, store, _):
        send_all(bus)
        await bus.emptied()
        assert store.tally(HEIGHTS.digest, 0).n == 60 + 9003


async def test_with_a_name_for_each_report_it_is_counted_and_only_the_flag_tells(tmp_path: Path) -> None:
    """A quota stops one sender. Against many names there is the list of those who are let in, and nothing else."""
    async with counting(tmp_path / "store", Limits(1)) as (bus, store, _):
        for number, report in enumerate(made_up(61)):
            bus.send(report_topic("heights", f"sybil-{number}"), encode_frame([report]))
        await bus.emptied()
        assert store.tally(HEIGHTS.digest, 0).n == 61
    estimate = next(payload for topic, payload in reversed(bus.published) if topic == "hush/v1/estimates/heights")
    assert b'"flags":["more_than_enrolled"]' in estimate


ODD = ["", " ", "evil ", " evil", "e\u200bvil", "év", "-evil", ".evil", "evil?", "evil\x7f", "x" * 129, "x" * 4000]


async def test_names_that_are_not_names_count_nothing_and_open_no_quota(tmp_path: Path) -> None:
    """Each of them would have a quota of its own, and a log in which one looks like another."""
    async with counting(tmp_path / "store", Limits(1)) as (bus, store, outcomes):
        for name in ODD:
            bus.send(f"hush/v1/reports/heights/{name}", encode_frame(made_up(2)), encode_json("heights", made_up(1)[0]))
        bus.send(report_topic("heights", "x" * 128), encode_frame(made_up(1)))
        await bus.emptied()
        assert store.tally(HEIGHTS.digest, 0).n == 1
        assert store.refusals("heights") == {Refusal.BAD_SENDER: 2 * len(ODD)}
        assert {name for outcome in outcomes for name in outcome.senders.values()} <= {None, *ODD}
        with closing(sqlite3.connect(quota_file(tmp_path / "store"))) as quotas:
            assert quotas.execute("SELECT count(DISTINCT sender) FROM pending").fetchone() == (1,)
            assert quotas.execute("SELECT count(*) FROM charge").fetchone() == (0,)


async def test_a_topic_of_another_shape_has_no_sender_to_be_refused_for(tmp_path: Path) -> None:
    async with counting(tmp_path / "store", None) as (bus, store, _):
        bus.send("hush/v1/reports/heights/a/-b", encode_frame(made_up(1)))
        bus.send("hush/v1/reports/unknown/-b", encode_frame(made_up(1)))
        bus.send("hush/v1/reports/heights/-b", b"neither a frame nor JSON")
        await bus.emptied()
        assert store.refusals("heights") == {Refusal.BAD_SENDER: 1}
        assert store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 1, Refusal.BAD_SENDER: 1}
