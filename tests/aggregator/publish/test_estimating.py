"""An estimate that fails is a value, whoever makes it; and no NaN or infinity ever leaves."""

import asyncio
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from made_results import changed
from planting import Plants
from waiting import until, wait_until

from hush import Task
from hush_aggregator import Estimate, PartEstimate, ProcessEstimator
from hush_aggregator.estimate import PooledMean, WinsorisedMean, estimate
from hush_aggregator.estimate import process as estimation
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.process import Failure, try_estimate
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task
from hush_simulations.engines.experiment import SeededRng

NAN = math.nan
T = TypeVar("T")
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
POINT = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]}
HEIGHTS, SLOW, DYING = (
    make_task({"id": name, "epsilon": "1", "domain": NUMBER}) for name in ("heights", "slow", "dies")
)
COLOURS = make_task(
    {"id": "colours", "epsilon": "1", "domain": {"kind": "category", "labels": ["red", "green", "blue"]}}
)


def tally(task: Task, *bodies: int) -> Tally:
    return fold(task.randomizer, np.array(bodies).reshape(-1, 1))


EVERY_KIND: list[dict[str, Any]] = [
    {"domain": NUMBER, "mechanism": "laplace"},
    {"domain": NUMBER, "offers": ["0.5", "1"], "mechanism": "laplace"},
    {"domain": {"kind": "category", "labels": ["red", "green"]}},
    {"domain": POINT},
]
VALUES = {"number": 0.5, "category": "red", "vector": (0.5, 0.5, 0.5)}
COUNTED = tally(HEIGHTS, 1 << 19, 1 << 20)
SOUND = estimate(HEIGHTS, COUNTED, 0.95)
Planted = Callable[[object], Estimate | Failure]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    """What becomes of an estimate that a test made, or an error that it raises."""

    def become(made: object) -> Estimate | Failure:
        def plant(*_: object) -> Any:  # noqa: ANN401 - wrong types are among what is planted
            if isinstance(made, BaseException):
                raise made
            return made() if callable(made) else made

        monkeypatch.setattr(estimation, "estimate", plant)
        return try_estimate(HEIGHTS, COUNTED, 0.95)

    return become


def others(facts: Mapping[str, T]) -> dict[str, T]:
    """All but what is about the population."""
    return {target: fact for target, fact in facts.items() if target != "population"}


def test_a_sound_estimate_comes_through_as_it_is(planted: Planted) -> None:
    assert planted(SOUND) is SOUND


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (RuntimeError("the sum is 4711"), "failed"),
        (FloatingPointError("4711"), "not_finite"),
        (OverflowError("4711"), "not_finite"),
        (MemoryError(), "failed"),
        (lambda: np.float64(1) / np.zeros(1), "not_finite"),  # an error, and no warning in the log
        (changed(SOUND, mean=NAN), "not_finite"),
        (
            replace(
                SOUND,
                parts=tuple(PartEstimate(n=9, name=name, mean=mean) for name, mean in (("a", 0.5), ("b", math.inf))),
            ),
            "not_finite",
        ),
        (replace(SOUND, pooled=PooledMean(object(), {}, "")), "failed"),  # type: ignore[arg-type]
        (None, "failed"),
    ],
)
def test_a_failure_has_a_reason_and_no_number_of_the_reports(planted: Planted, made: object, reason: str) -> None:
    found = planted(made)
    assert isinstance(found, Failure)
    assert found.reason == reason
    assert "4711" not in found.cause


def test_a_tally_that_the_task_cannot_have_given_is_a_failure() -> None:
    found = try_estimate(HEIGHTS, Tally(3, (1,)), 0.95)
    assert isinstance(found, Failure)
    assert (found.reason, "ValueError" in found.cause) == ("failed", True)


def test_what_is_not_a_number_is_left_out_by_name_and_the_rest_stays(planted: Planted) -> None:
    intervals = {**SOUND.intervals, "population": (0.0, NAN)}
    wrong = {"stderr": {"reporters": math.inf}, "manski": (NAN, 1.0), "failures": {"anytime": "failed"}}
    found = planted(changed(SOUND, intervals=intervals, **wrong))
    assert isinstance(found, Estimate)
    assert found.single.failures == {
        "population": "not_finite",
        "stderr": "not_finite",
        "manski": "not_finite",
        "anytime": "failed",
    }
    assert found.intervals == others(SOUND.intervals)
    assert found.methods == others(SOUND.methods)
    assert (found.n, found.mean, found.winsorised) == (SOUND.n, SOUND.mean, SOUND.winsorised)
    assert (found.stderr, found.single.manski) == ({}, None)


def test_each_category_names_its_own_failures(planted: Planted) -> None:
    made = estimate(COLOURS, tally(COLOURS, 1, 2, 2), 0.95)
    first, second, third = made.parts
    second = replace(second, joint_intervals={**second.joint_intervals, "population": (0.0, NAN)})
    found = planted(replace(made, parts=(first, second, third)))
    assert isinstance(found, Estimate)
    assert found.parts[0].failures == {}
    assert found.parts[1].failures == {"population": "not_finite"}
    assert found.parts[1].joint_intervals.keys() == others(found.parts[0].joint_intervals).keys()
    assert found.parts[1].intervals.keys() == found.parts[0].intervals.keys()
    assert [part.methods for part in found.parts] == [part.methods for part in made.parts]


def spoilt(value: object) -> Iterator[Any]:
    """The value again and again, each time with another of its numbers infinite."""
    match value:
        case float():
            yield math.inf
        case dict():
            yield from ({**value, key: bad} for key in value for bad in spoilt(value[key]))
        case tuple():
            for place, inner in enumerate(value):
                yield from ((*value[:place], bad, *value[place + 1 :]) for bad in spoilt(inner))
        case Estimate() | PartEstimate() | WinsorisedMean() | PooledMean():
            for field in fields(value):
                yield from (replace(value, **{field.name: bad}) for bad in spoilt(getattr(value, field.name)))


def numbers(value: object) -> Iterator[float]:
    match value:
        case float():
            yield value
        case dict():
            yield from (number for inner in value.values() for number in numbers(inner))
        case tuple():
            yield from (number for inner in value for number in numbers(inner))
        case Estimate() | PartEstimate() | WinsorisedMean() | PooledMean():
            yield from (number for field in fields(value) for number in numbers(getattr(value, field.name)))


@pytest.mark.parametrize("document", EVERY_KIND, ids=str)
def test_no_number_that_is_not_finite_is_left_in_any_field(planted: Planted, document: dict[str, Any]) -> None:
    task = make_task({"id": "t", "epsilon": "1", "enrolled": 90, **document})
    rng = SeededRng(1)
    index = task.domain.index(VALUES[document["domain"]["kind"]])
    bodies = [task.perturb(index, rng, place % (len(task.offers) or 1)) for place in range(8)]
    made = estimate(task, fold(task.randomizer, np.array(bodies)), 0.95)
    assert all(map(math.isfinite, numbers(made)))
    spoilt_ones = list(spoilt(made))
    assert len(spoilt_ones) > 20
    for bad in spoilt_ones:
        found = planted(bad)
        assert isinstance(found, Failure) or all(map(math.isfinite, numbers(found)))
        assert found != made


# Processes


def children(of: int) -> set[int]:
    """The processes that a process has started, and that run."""
    found = set[int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and int(parent) == of:
                found.add(int(stat.parent.name))
    return found


@pytest.fixture
def started() -> Callable[[], set[int]]:
    """The processes that this test has started."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no list of processes")
    before = children(os.getpid())
    return lambda: children(os.getpid()) - before


@pytest.mark.medium
async def test_a_process_gives_the_same_estimate_and_serves_again(started: Callable[[], set[int]]) -> None:
    with ProcessEstimator() as estimator:
        await estimator.prepare()
        (first,) = started()
        for task, counted in (HEIGHTS, COUNTED), (COLOURS, tally(COLOURS, 1, 2, 2)), (HEIGHTS, Tally(3, (1,))):
            assert await estimator(task, counted, 0.9) == try_estimate(task, counted, 0.9)
        assert started() == {first}
        together = await asyncio.gather(*(estimator(HEIGHTS, COUNTED, 0.9) for _ in range(2)))
        assert together == [try_estimate(HEIGHTS, COUNTED, 0.9)] * 2
        await until(lambda: len(started()) == 1)
    await until(lambda: not started())


@pytest.mark.medium
async def test_an_estimate_that_is_given_up_or_dies_costs_its_process_alone(
    started: Callable[[], set[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plants = Plants(tmp_path, {"slow": "sleeps 600", "dies": "dies"})
    for name, value in plants.environment().items():
        monkeypatch.setenv(name, value)
    with ProcessEstimator() as estimator:
        asking = asyncio.create_task(estimator(SLOW, COUNTED, 0.9))
        await until(plants.attempts)
        (first,) = started()
        asking.cancel()
        await asyncio.wait({asking})
        await until(lambda: not started())
        await estimator.prepare()
        (second,) = started()
        assert second != first
        os.kill(second, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, second, os.WEXITED | os.WNOWAIT)  # the estimator is to notice it
        assert isinstance(await estimator(HEIGHTS, COUNTED, 0.9), Estimate)  # one that died waiting is replaced
        died = await estimator(DYING, COUNTED, 0.9)
        assert isinstance(died, Failure)
        assert died.reason == "crashed"
        await until(lambda: not started())


@pytest.mark.medium
def test_no_process_of_estimates_outlives_the_service() -> None:
    program = """
import asyncio, sys
from hush_aggregator.estimate.process import ProcessEstimator

async def main():
    await ProcessEstimator().prepare()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        (orphan,) = children(service.pid)
        service.kill()
    wait_until(lambda: not Path(f"/proc/{orphan}").exists())


@pytest.mark.medium
async def test_a_thread_makes_the_estimates_if_no_process_can_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for executable in ("hush-is-not-here", "true"):  # the second ends at once
        monkeypatch.setattr(sys, "executable", executable)
        with ProcessEstimator() as estimator:
            for _ in range(2):
                assert await estimator(HEIGHTS, COUNTED, 0.95) == SOUND
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2  # one each
