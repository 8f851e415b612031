"""A task that is made without a file is validated as strictly: what is annotated is checked, and nothing inexact."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from hush import Task
from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, Coordinate, NumberDomain, VectorDomain
from hush_common.errors import EpsilonError, TaskError
from hush_common.mechanisms.parameters import ChannelTable, Coins, Parameters

OPENS = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER = NumberDomain(120.0, 220.0, "cm")
TASK = Task(id="heights", epsilon=Fraction(1), mechanism="laplace", domain=NUMBER)
STICKY = replace(
    TASK,
    mechanism="multilevel",
    parameters=Parameters(levels=(1,)),
    rounds=9,
    repeat="sticky",
    opens=OPENS,
    round_every=timedelta(days=1),
)


TABLE: dict[str, Any] = {"positions": (0, 1), "unit": 1, "weights": ((1, 1), (1, 1))}
NO_INTEGERS: tuple[Any, ...] = ([1], (1.0,), (True,), ("1",), None)
HOSTILE: dict[str, tuple[Any, ...]] = {
    "id": (5, None, b"heights", "", "Heights", "a" * 65),
    "epsilon": (1.0, 1, True, "1", None, Fraction(0), Fraction(-1), Fraction(51), float("nan")),
    "mechanism": ("gauss", "", None, 1, ["laplace"], "randomized_response", "multilevel"),
    "domain": (None, "number", {"kind": "number"}, NumberDomain),
    "parameters": (None, {}, Parameters(levels=(1,)), Parameters(sampled=1)),
    "offers": ([], (0.5, 1), (Fraction(1),), (Fraction(2), Fraction(1)), None),
    "title": (None, 5, b"x", "\n", "x" * 501),
    "purpose": (None, 5, b"x", "\x1b[31m", "x" * 501),
    "rounds": (0, -1, 1.0, True, None, "1", 10**7),
    "repeat": (None, "", "often", True, "sticky"),
    "round_every": (1, "1d", timedelta(0), timedelta(days=-1), timedelta(seconds=1.5)),
    "opens": ("2026-01-01", 0, datetime(2026, 1, 1)),  # noqa: DTZ001 - it must be refused
    "closes": ("2026-01-01", 0, datetime(2026, 1, 1)),  # noqa: DTZ001
    "enrolled": (0, -1, 1.5, True, "9", 1 << 60),
    "payload": (None, "{}", bytearray(b"{}")),
}


@pytest.mark.parametrize(
    "change",
    [{name: bad} for name, values in HOSTILE.items() for bad in values],
    ids=str,
)
def test_a_hostile_argument_is_refused_by_its_name(change: dict[str, Any]) -> None:
    with pytest.raises(TaskError) as caught:
        replace(TASK, **change)
    assert caught.value.field in {*change, "levels", "sampled"}
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 220


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 1},
        {"rounds": 2},
        {"mechanism": "laplace", "parameters": Parameters()},
        {"parameters": Parameters()},
        {"parameters": Parameters(levels=(0,))},
        {"parameters": Parameters(levels=(-1,))},
        {"parameters": Parameters(levels=(8,))},
        {"parameters": Parameters(levels=(1, 1))},
        {"offers": (Fraction(1, 2), Fraction(1))},
        {"epsilon": Fraction(1, 10**6)},
        {"domain": BitDomain()},
    ],
    ids=str,
)
def test_a_hostile_sticky_task_is_refused(change: dict[str, Any]) -> None:
    assert STICKY.memoized_mechanism is not None
    with pytest.raises(TaskError):
        replace(STICKY, **change)


@pytest.mark.parametrize(
    "arguments",
    [
        {"lower": "0"},
        {"lower": None},
        {"lower": True},
        {"lower": Fraction(1, 2)},
        {"lower": float("nan")},
        {"lower": -(10**400)},
        {"upper": float("inf")},
        {"upper": 10**400},
        {"upper": 0.0},
        {"unit": None},
        {"unit": "\n"},
        {"unit": "x" * 41},
        {"steps": 0},
        {"steps": -1},
        {"steps": 1.5},
        {"steps": True},
        {"steps": GRID_STEPS + 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [NumberDomain, Coordinate])
def test_a_hostile_range_is_refused(kind: type[NumberDomain], arguments: dict[str, Any]) -> None:
    legal: dict[str, Any] = {"lower": 0.0, "upper": 1.0} | ({"name": "x"} if kind is Coordinate else {})
    kind(**legal)
    with pytest.raises(TaskError) as caught:
        kind(**(legal | arguments))
    assert caught.value.field.startswith("domain.")


def test_bounds_in_whole_numbers_are_the_same_bounds() -> None:
    assert NumberDomain(120, 220, "cm") == NUMBER
    assert isinstance(NumberDomain(120, 220).lower, float)


@pytest.mark.parametrize("labels", [["a", "b"], "ab", ("a", 1), ("a", None), None, {"a", "b"}])
def test_hostile_labels_are_refused(labels: Any) -> None:  # noqa: ANN401 - anything at all
    with pytest.raises(TaskError):
        CategoryDomain(labels)


@pytest.mark.parametrize(
    "coordinates",
    [
        [Coordinate(0.0, 1.0, name="x")],
        (NumberDomain(0.0, 1.0),),
        (None,),
        None,
        (Coordinate(0.0, 1.0, name="x"), Coordinate(0.0, 1.0, name="y", steps=4)),
    ],
)
def test_hostile_coordinates_are_refused(coordinates: Any) -> None:  # noqa: ANN401
    with pytest.raises(TaskError):
        VectorDomain(coordinates)


@pytest.mark.parametrize("name", [None, 5, "", " ", "\n", "x" * 101])
def test_a_hostile_name_of_a_coordinate_is_refused(name: Any) -> None:  # noqa: ANN401
    with pytest.raises(TaskError):
        Coordinate(0.0, 1.0, name=name)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        *((Parameters, {"levels": bad}) for bad in NO_INTEGERS),
        *((Parameters, {"size": bad}) for bad in NO_INTEGERS),
        *((Parameters, {"sampled": bad}) for bad in (1.0, True, "1")),
        *((Parameters, {"coins": bad}) for bad in ("0.5", (0.5, 0.5))),
        *((Parameters, {"table": bad}) for bad in ("epsilon-1", {"unit": 1})),
        *((Coins, {"truth": bad, "yes": Fraction(1, 2)}) for bad in (0.5, "0.5", None)),
        *((ChannelTable, {**TABLE, "positions": bad}) for bad in NO_INTEGERS),
        *((ChannelTable, {**TABLE, "unit": bad}) for bad in (1.0, True, None)),
        *((ChannelTable, {**TABLE, "weights": bad}) for bad in (((1.0, 1), (1, 1)), [(1, 1)], ([1], [1]), None)),
    ],
    ids=str,
)
def test_a_parameter_that_is_not_exact_is_refused(kind: type[Any], arguments: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        kind(**arguments)


def test_an_epsilon_in_floating_point_is_an_error_of_epsilon() -> None:
    inexact: Any = 0.5
    with pytest.raises(EpsilonError, match="not exact"):
        replace(TASK, epsilon=inexact)


def test_a_task_without_published_bytes_binds_no_report() -> None:
    with pytest.raises(TaskError, match="no report can be bound") as caught:
        _ = TASK.digest
    assert caught.value.field == "payload"
    assert replace(TASK, payload=b"{}").digest
