"""A value becomes an index exactly, before any random draw, or none; and there is no value for which that fails."""

import math
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_common.domain import (
    GRID_STEPS,
    BitDomain,
    CategoryDomain,
    Coordinate,
    Domain,
    Index,
    NumberDomain,
    VectorDomain,
)
from hush_common.errors import TaskError
from hush_common.rng import SpareRng

HEIGHTS = NumberDomain(120.0, 220.0, "cm")
COLOURS = CategoryDomain(("red", "green", "blue"))
BODY = VectorDomain((Coordinate(0.0, 1.0, name="x"), Coordinate(-10.0, 10.0, name="y")))
HALF, UP = GRID_STEPS // 2, GRID_STEPS
SECRET = 172.34567


class Hostile(Fraction):
    """A number whose every method raises."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(SECRET)


class Foreign:
    """A real number by its word alone, of which nothing is known but what `__float__` says."""

    def __init__(self, result: object) -> None:
        self.result = result

    def __float__(self) -> float:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result  # type: ignore[return-value]  # on purpose


Real.register(Foreign)


class Wrapped(float):
    """Says that it is numpy's, of a module that is none."""

    __module__ = "numpy"

    def tolist(self) -> NoReturn:
        raise SystemExit(SECRET)


class Homeless(float):
    __module__ = None  # type: ignore[assignment]  # on purpose


# ---- numbers


def test_every_kind_of_real_number_is_read_alike() -> None:
    kinds = (int, float, Decimal, Fraction, np.float64, np.float32, np.int64, Wrapped, Homeless)
    for value in [*(kind(170) for kind in kinds), Foreign(170.0)]:
        assert HEIGHTS.index(value) == Index(HALF), type(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Hostile(170), id="Hostile"),
        *(None, math.nan, np.float32("nan"), np.ma.masked, Decimal("nan"), Decimal("-sNaN123")),
        *(Foreign(ValueError(SECRET)), Foreign(SystemExit(SECRET)), Foreign(KeyboardInterrupt(SECRET))),
        *(Foreign("170"), Foreign(math.nan)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_a_number_is_replaced(value: object) -> None:
    assert HEIGHTS.check(value) == "replaced"
    assert HEIGHTS.read(value) == HEIGHTS.nothing
    assert BODY.check([0.5, value]) == "replaced"


@pytest.mark.parametrize(
    "value",
    [True, False, "12", b"12", 1j, [1], np.True_, np.array([1.0]), pytest.param(object(), id="object()"), float],
    ids=repr,
)
def test_another_type_is_a_mistake_named_without_the_value(value: object) -> None:
    with pytest.raises(TypeError, match=f"{type(value).__name__}|bool|list") as caught:
        HEIGHTS.check(value)
    assert "12" not in str(caught.value)
    assert HEIGHTS.read(value, strict=False) == HEIGHTS.nothing


@pytest.mark.parametrize(
    ("end", "values"),
    [
        (0, [119.999, -1e300, -math.inf, Decimal("-1e999999999999999999"), Fraction(-(10**400), 3)]),
        (UP, [220.0001, math.inf, 10**500, Decimal("inf"), Decimal("1e999999999"), np.longdouble("inf")]),
        (UP, [Foreign(1e300)]),
    ],
)
def test_a_number_beyond_a_bound_is_moved_to_the_bound(end: int, values: list[object]) -> None:
    for value in values:
        reading = HEIGHTS.read(value)
        assert (reading.parts, reading.coercion) == ((end,), "moved")


def test_the_bounds_themselves_are_inside() -> None:
    assert [HEIGHTS.index(value).index for value in (120.0, 220.0)] == [0, UP]
    assert [HEIGHTS.check(value) for value in (120.0, 220.0)] == ["used", "used"]


HUGE = [10**400_000, -Fraction(10**400_000, 7), Decimal("9" * 400_000), Decimal("1e-999999999")]


@pytest.mark.timeout(60)  # they take milliseconds; to expand the exponent, or to cancel a fraction, would take minutes
@pytest.mark.parametrize("value", HUGE, ids=lambda value: type(value).__name__)
def test_the_work_on_a_huge_number_is_bounded_by_its_digits(value: object) -> None:
    assert NumberDomain(-1.0, 1.0).check(value) in ("used", "moved")


@pytest.mark.medium
@given(st.fractions(100, 240), st.sampled_from([(120.0, 220.0), (0.0, 1.0), (-1e-300, 3e300), (0.1, 0.3)]))
def test_the_index_is_the_nearest_grid_point_exactly(value: Fraction, bounds: tuple[float, float]) -> None:
    lower, upper = map(Fraction, bounds)
    inside = min(max(value, lower), upper)
    reading = NumberDomain(*bounds).read(value)
    assert reading.parts == (round((inside - lower) / (upper - lower) * GRID_STEPS),)
    assert reading.moved == (inside != value)


def test_the_narrowest_and_the_widest_ranges_index_exactly() -> None:
    for lower, upper in ((0.0, 5e-324), (-8e307, 8e307), (1e16, 1e16 + 2)):
        domain = NumberDomain(lower, upper)
        assert domain.index(upper).index == GRID_STEPS
        assert domain.value_of(GRID_STEPS) == Fraction(upper)
        assert domain.step == (Fraction(upper) - Fraction(lower)) / GRID_STEPS


@pytest.mark.parametrize(
    ("lower", "upper", "field"),
    [
        (1.0, 1.0, "domain.lower"),
        (2.0, 1.0, "domain.lower"),
        (math.nan, 1.0, "domain.lower"),
        (0.0, math.inf, "domain.upper"),
        (-1e308, 1e308, "domain.upper"),
    ],
)
def test_bounds_without_a_range_are_refused_by_name(lower: float, upper: float, field: str) -> None:
    with pytest.raises(TaskError) as caught:
        NumberDomain(lower, upper)
    assert caught.value.field == field


# ---- what is drawn for a missing value


class Counted:
    """Notes below what it is asked to draw; the largest integer is always drawn."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def randbelow(self, n: int, /) -> int:
        self.asked.append(n)
        return n - 1

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError(count)


@pytest.mark.parametrize(
    ("domain", "value"),
    [(HEIGHTS, 150.0), (BitDomain(), True), (COLOURS, "green"), (BODY, [0.1, 2])],
    ids=["number", "bit", "category", "vector"],
)
def test_a_present_value_costs_the_draw_of_a_missing_one(
    domain: Domain, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes it from elsewhere, so that the draws of the test vectors stay in their order."""
    spare, injected = Counted(), Counted()
    monkeypatch.setattr(SpareRng, "randbelow", lambda _self, n: spare.randbelow(n))
    assert domain.complete(domain.read(value), injected) == domain.index(value)
    assert (spare.asked, injected.asked) == ([*domain.sizes], [])
    drawn = domain.complete(domain.read(None), injected)
    assert (spare.asked, injected.asked) == ([*domain.sizes], [*domain.sizes])
    last = tuple(size - 1 for size in domain.sizes)
    assert drawn == Index(last if len(last) > 1 else last[0])
    with pytest.raises(ValueError, match="index"):
        domain.index(None)


def test_only_the_missing_part_of_a_vector_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    spare, injected = Counted(), Counted()
    monkeypatch.setattr(SpareRng, "randbelow", lambda _self, n: spare.randbelow(n))
    assert BODY.complete(BODY.read([0.5, None]), injected) == Index((HALF, GRID_STEPS))
    assert (len(spare.asked), len(injected.asked)) == (1, 1)


# ---- bits


def test_a_bit_is_yes_or_no() -> None:
    for value, index in ((True, 1), (False, 0), (1, 1), (0, 0), (np.True_, 1), (np.int8(1), 1)):
        assert BitDomain().index(value).index == index
    for other in (2, -1, 10**500, None, math.nan):
        assert BitDomain().check(other) == "replaced"


@pytest.mark.parametrize("value", [1.0, "yes", [1]])
def test_another_type_is_not_a_bit(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        BitDomain().check(value)


# ---- categories


class Label(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError(SECRET)

    def __hash__(self) -> int:
        raise ValueError(SECRET)


def test_a_label_becomes_its_place() -> None:
    assert [COLOURS.index(label).index for label in COLOURS.labels] == [0, 1, 2]
    assert COLOURS.check("red") == "used"
    assert COLOURS.index(Label("green")).index == 1
    for other in ("Red", "red ", "", "secret", None, math.nan):
        assert COLOURS.check(other) == "replaced"


@pytest.mark.parametrize("value", [0, True, b"red", ["red"], ("red",), 1.5], ids=repr)
def test_another_type_is_not_a_label(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        COLOURS.check(value)


def test_one_label_may_stand_for_all_other_texts() -> None:
    ways = CategoryDomain(("bus", "train", "else"), other="else")
    found = [(ways.read(way).parts, ways.check(way)) for way in ("bus", "else", "tram")]
    assert found == [((0,), "used"), ((2,), "used"), ((2,), "moved")]
    assert ways.check(None) == "replaced"
    with pytest.raises(TaskError, match="else"):
        CategoryDomain(("bus", "train"), other="else")


# ---- vectors


def test_a_vector_becomes_an_index_for_each_coordinate() -> None:
    values = ([0.5, 10], (Decimal("0.5"), 10.0), {"y": 10, "x": 0.5}, {"x": Fraction(1, 2), "y": np.float64(10)})
    for value in values:
        assert BODY.index(value).index == (HALF, UP)
    with pytest.raises(TypeError):
        _ = BODY.index([0, 0]).scalar


def test_one_coordinate_outside_its_bounds_is_reported() -> None:
    found = [BODY.check(value) for value in ([2, 0], [1, 0], [0, 11], [0, None])]
    assert found == ["moved", "used", "moved", "replaced"]


class Endless(list[float]):
    def __iter__(self) -> NoReturn:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (None, (None, None)),
        (math.nan, (None, None)),
        ([], (None, None)),
        ([0.5], (None, None)),
        ([0.5, 1, 2], (None, None)),
        (Endless([0.5, 10]), (None, None)),
        ([0.5, math.nan], (HALF, None)),
        ([None, 11], (None, UP)),
        ({"x": 0.5}, (HALF, None)),
        ({"x": 0.5, "z": 1}, (HALF, None)),
        (np.array([0.5, 10.0]), (HALF, UP)),
        (np.array([0.5]), (None, None)),
    ],
    ids=str,
)
def test_a_vector_lacks_the_numbers_that_are_not_given(value: object, parts: tuple[int | None, ...]) -> None:
    assert BODY.read(value).parts == parts


@pytest.mark.parametrize(
    "value",
    [
        *(0.5, "0.5,1", b"01", [[0.5], [1]], ["0.5", 1], {0.5, 1}, np.ones((2, 2))),
        pytest.param(iter([0.5, 1]), id="an iterator"),
    ],
    ids=str,
)
def test_another_type_is_not_a_vector(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        BODY.check(value)
    assert "0.5" not in str(caught.value)
    assert BODY.read(value, strict=False).coercion == "replaced"
