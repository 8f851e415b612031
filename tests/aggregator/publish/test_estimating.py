"""An estimate that fails is a value, whoever makes it; and no NaN or infinity ever leaves."""

import asyncio
import logging
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from made_results import changed
from waiting import wait_until

from hush import Task
from hush_aggregator import Estimate, PartEstimate, ProcessEstimator, estimation
from hush_aggregator.estimate import PooledMean, WinsorisedMean, estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimation import Failure, try_estimate
from hush_aggregator.tally import Tally
from hush_common.task import make_task
from hush_simulations.engines.experiment import SeededRng

NAN = math.nan
T = TypeVar("T")
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
COLOURS = make_task(
    {"id": "colours", "epsilon": "1", "domain": {"kind": "category", "labels": ["red", "green", "blue"]}}
)


def tally(task: Task, *bodies: int) -> Tally:
    return fold(task.randomizer, np.array(bodies).reshape(-1, 1))


NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
POINT = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]}
EVERY_KIND: list[dict[str, Any]] = [
    {"domain": NUMBER, "mechanism": "laplace"},
    {"domain": NUMBER, "offers": ["0.5", "1"], "mechanism": "laplace"},
    {"domain": {"kind": "category", "labels": ["red", "green"]}},
    {"domain": POINT},
]
VALUES = {"number": 0.5, "category": "red", "vector": (0.5, 0.5, 0.5)}
COUNTED = tally(HEIGHTS, 1 << 19, 1 << 20)
SOUND = estimate(HEIGHTS, COUNTED, 0.95)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Estimate | Failure]:
    """What becomes of an estimate that a test made, or an error that it raises."""

    def become(made: object) -> Estimate | Failure:
        def plant(*_: object) -> Any:  # noqa: ANN401 - wrong types are among what is planted
            if isinstance(made, BaseException):
                raise made
            return made

        monkeypatch.setattr(estimation, "estimate", plant)
        return try_estimate(HEIGHTS, COUNTED, 0.95)

    return become


def others(facts: Mapping[str, T]) -> dict[str, T]:
    """All but what is about the population."""
    return {target: fact for target, fact in facts.items() if target != "population"}


Planted = Callable[[object], Estimate | Failure]


def test_a_sound_estimate_comes_through_as_it_is(planted: Planted) -> None:
    assert planted(SOUND) is SOUND


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (RuntimeError("the sum is 4711"), "failed"),
        (FloatingPointError("4711"), "not_finite"),
        (OverflowError("4711"), "not_finite"),
        (MemoryError(), "failed"),
        (changed(SOUND, mean=NAN), "not_finite"),
        (
            replace(
                SOUND,
                parts=(
                    PartEstimate(n=9, name="a", mean=0.5),
                    PartEstimate(n=9, name="b", mean=math.inf),
                ),
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
    assert found.reason == "failed"
    assert found.cause.startswith("ValueError in __init__.py, line ")


def test_what_is_no_number_is_left_out_by_name_and_the_rest_stays(planted: Planted) -> None:
    intervals = {**SOUND.intervals, "population": (0.0, NAN)}
    found = planted(
        changed(
            SOUND,
            intervals=intervals,
            stderr={"reporters": math.inf},
            manski=(NAN, 1.0),
            failures={"anytime": "failed"},
        )
    )
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
def test_no_number_that_is_none_is_left_in_any_field(planted: Planted, document: dict[str, Any]) -> None:
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


def test_a_division_by_zero_is_an_error_and_no_warning_in_the_log(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(SOUND)
    monkeypatch.setattr(estimation, "estimate", lambda *_: np.float64(1) / np.zeros(1))
    found = try_estimate(HEIGHTS, COUNTED, 0.95)
    assert isinstance(found, Failure)
    assert found.reason == "not_finite"


async def test_a_process_gives_the_same_estimate_and_serves_again() -> None:
    with ProcessEstimator() as estimator:
        await estimator.prepare()
        (first,) = estimator._all
        for task, counted in (HEIGHTS, COUNTED), (COLOURS, tally(COLOURS, 1, 2, 2)), (HEIGHTS, Tally(3, (1,))):
            assert await estimator(task, counted, 0.9) == try_estimate(task, counted, 0.9)
        assert estimator._all == {first}
        together = await asyncio.gather(*(estimator(HEIGHTS, COUNTED, 0.9) for _ in range(2)))
        assert together == [try_estimate(HEIGHTS, COUNTED, 0.9)] * 2
        assert len(estimator._all) == 1
    assert first._process.poll() is not None
    assert not estimator._all


async def test_an_estimate_that_is_given_up_ends_its_process_and_the_next_has_another() -> None:
    with ProcessEstimator() as estimator:
        await estimator.prepare()
        (first,) = estimator._all
        first.ask = lambda *_: first.hear()  # type: ignore[method-assign,assignment]  # asks nothing: waits
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await estimator(HEIGHTS, COUNTED, 0.9)
        assert first._process.poll() is not None
        await estimator.prepare()
        (second,) = estimator._all
        second._process.kill()
        second._process.wait()
        assert isinstance(await estimator(HEIGHTS, COUNTED, 0.9), Estimate)  # one that died waiting is replaced
        (third,) = estimator._all
        asyncio.get_running_loop().call_later(0.05, third._process.kill)
        third.ask = lambda _, __, made: made.append(Failure("failed" if third.hear() else "crashed", ""))  # type: ignore[method-assign,assignment]
        assert await estimator(HEIGHTS, COUNTED, 0.9) == Failure("crashed", "")
        assert not estimator._all


def test_no_process_outlives_the_service() -> None:
    program = """
import asyncio, os, signal
from hush_aggregator.estimation import ProcessEstimator

async def main():
    estimator = ProcessEstimator()
    await estimator.prepare()
    print(next(iter(estimator._all))._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    orphan = int(done.stdout)
    wait_until(lambda: not Path(f"/proc/{orphan}").exists())


async def test_where_no_process_can_be_started_a_thread_makes_the_estimates(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for executable, program in (("hush-is-not-here", estimation._PROGRAM), (sys.executable, "pass")):
        monkeypatch.setattr(sys, "executable", executable)
        monkeypatch.setattr(estimation, "_PROGRAM", program)
        with ProcessEstimator() as estimator:
            for _ in range(2):
                assert await estimator(HEIGHTS, COUNTED, 0.95) == SOUND
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2  # one each
