"""Results of a store that nobody counts into, or that another process counts into."""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from commands import run

from hush_aggregator import ResultReader, SqliteReader, SqliteStore
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.store import Accepted
from hush_common.errors import TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
ROUNDS = {"rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": NUMBER, **ROUNDS})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS)
        yield store


def accepted(start: int, *bodies: int, round_: int = 0) -> Accepted:
    ids = np.frombuffer(b"".join((start + place).to_bytes(16, "big") for place in range(len(bodies))), dtype="V16")
    return Accepted(HEIGHTS, round_, ids, np.array(bodies, dtype=np.int64)[:, None])


async def test_a_reader_gives_the_result_of_what_another_has_counted(store: SqliteStore, path: Path) -> None:
    with SqliteReader(path) as reader:
        results = ResultReader(reader, confidence=0.9, clock=lambda: NOON)
        assert (await results.result("heights")).n == 0
        store.commit([accepted(0, 5, 1 << 19)], {("heights", Refusal.MALFORMED): 2})
        found = await results.result("heights")
    made = estimate(HEIGHTS, fold(HEIGHTS.randomizer, np.array([[5], [1 << 19]])), 0.9)
    assert (found.estimate, found.refused, found.updated_at) == (made, {Refusal.MALFORMED: 2}, NOON)
    assert found.to_document()["task"] == "heights"


async def test_each_round_has_its_result_and_the_latest_is_the_last_with_reports(store: SqliteStore) -> None:
    results = ResultReader(store)
    assert (await results.latest([HEIGHTS]))[0].round == 0
    store.commit([accepted(0, 5, round_=1), accepted(0, 7, 8)], {})
    assert [(await results.result("heights", round_)).n for round_ in (0, 1)] == [2, 1]
    assert (await results.latest([HEIGHTS]))[0].round == 1


async def test_all_rounds_together_are_one_estimate_where_two_have_reports(store: SqliteStore) -> None:
    store.add_task(HEIGHTS)
    store.commit([accepted(0, 1 << 19, 1 << 18)], {})
    reader = ResultReader(store, clock=lambda: NOON)
    assert await reader.all_rounds("heights") is None
    store.commit([accepted(10, 1 << 20, round_=1)], {})
    pooled = await reader.all_rounds("heights")
    assert pooled is not None
    tallies = [store.tally(HEIGHTS.digest, number) for number in (0, 1)]
    assert pooled.estimate == combine(HEIGHTS, tallies, 0.95)
    assert (pooled.n, pooled.round, set(pooled.intervals)) == (3, 1, {"reporters", "population"})
    first, last = [await reader.result("heights", number) for number in (0, 1)]
    assert pooled.mean == pytest.approx((2 * (first.mean or 0) + (last.mean or 0)) / 3)


@pytest.mark.parametrize("rounds", ["--all-rounds", "--round=all"])
def test_the_command_prints_all_rounds_with_the_digits_of_json(store: SqliteStore, path: Path, rounds: str) -> None:
    store.commit([accepted(0, 1 << 19, 1 << 18), accepted(10, 1 << 20, round_=1)], {})
    asked = ["results", "heights", "--store", str(path), rounds]
    documents = json.loads(run([*asked, "--json"], path.parent).out)["results"]
    rows = list(csv.DictReader(run([*asked, "--csv"], path.parent).out.splitlines()))
    if rounds == "--round=all":
        assert [document["round"] for document in documents] == [0, 1]
        assert {row["round"] for row in rows} == {"0", "1"}
        return
    (document,) = documents
    pooled = combine(HEIGHTS, [store.tally(HEIGHTS.digest, number) for number in (0, 1)], 0.95)
    assert pooled is not None
    assert (document["rounds"], document["n"], document["mean"]) == (2, 3, pooled.mean)
    assert "round" not in document
    assert [row["target"] for row in rows] == ["reporters", "population"]
    for row in rows:
        assert (row["task"], row["round"], row["n"]) == ("heights", "all", "3")
        assert float(row["value"]) == document["mean"]
        assert [float(row["low"]), float(row["high"])] == document["intervals"][row["target"]]
    assert "--all-rounds" in run([*asked, "--round", "1"], path.parent).err


async def test_a_task_that_comes_later_is_found_and_what_is_not_there_is_named(store: SqliteStore) -> None:
    results = ResultReader(store)
    weights = make_task({"id": "weights", "epsilon": "1", "domain": NUMBER})
    with pytest.raises(TaskError, match="weights"):
        await results.result("weights")
    store.add_task(weights)
    assert (await results.result("weights")).task == weights
    with pytest.raises(TaskError, match=r"2 .*heights"):
        await results.result("heights", 2)


def test_the_counted_reports_of_a_round_fold_to_its_tally(store: SqliteStore) -> None:
    """More than are read at a time, and some that are committed meanwhile."""
    store.commit([accepted(0, *range(6000)), accepted(0, -1, round_=1)], {})
    reading = store.reports(HEIGHTS.digest, 0)
    first = next(reading)
    store.commit([accepted(6000, *range(6000, 9000))], {})
    reports = [first, *reading]
    assert [int.from_bytes(report.id, "big") for report in reports] == list(range(9000))
    assert {(report.digest, report.round) for report in reports} == {(HEIGHTS.report_digest, 0)}
    bodies = np.array([report.body for report in reports], dtype=np.int64)
    assert bodies[:, 0].tolist() == list(range(9000))
    assert fold(HEIGHTS.randomizer, bodies) == store.tally(HEIGHTS.digest, 0)
    assert [report.body for report in store.reports(HEIGHTS.digest, 1)] == [(-1,)]
    assert list(store.reports(bytes(32), 0)) == []
