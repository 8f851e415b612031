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

from hush_common import domain as reading
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

HEIGHTS = NumberDomain(120.0, 220.0, "cm")
SECRET = 172.34567


@pytest.mark.parametrize(
    "value", [170, 170.0, Decimal(170), Fraction(170), np.float64(170), np.float32(170), np.int64(170)], ids=repr
)
def test_every_kind_of_real_number_is_welcome(value: object) -> None:
    assert HEIGHTS.index(value).index == GRID_STEPS // 2


class Hostile(Fraction):
    """A number whose every method raises."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(SECRET)


class Foreign:
    """A real number by its word alone, of which nothing is known but what `__float__` says."""

    def __init__(self, result: object) -> None:
        self._result = result

    def __float__(self) -> float:
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result  # type: ignore[return-value]  # on purpose


Real.register(Foreign)


@pytest.mark.parametrize(
    "value",
    [
        None,
        math.nan,
        np.float32("nan"),
        np.ma.masked,
        Decimal("nan"),
        Decimal("-sNaN123"),
        Foreign(ValueError(SECRET)),
        Foreign(SystemExit(SECRET)),
        Foreign(KeyboardInterrupt(SECRET)),
        Foreign("170"),
        Foreign(math.nan),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_replaced_and_never_an_error(value: object) -> None:
    assert HEIGHTS.check(value) == "replaced"
    assert HEIGHTS.read(value) == HEIGHTS.nothing


class Wrapped(float):
    """Says that it is numpy's, of a module that is none."""

    __module__ = "numpy"

    def tolist(self) -> NoReturn:
        raise SystemExit(SECRET)


class Homeless(float):
    __module__ = None  # type: ignore[assignment]  # on purpose


def test_a_number_that_lies_about_its_origin_is_read_as_the_number_that_it_is() -> None:
    assert HEIGHTS.read(Wrapped(170)) == HEIGHTS.read(Homeless(170)) == HEIGHTS.read(170)


def test_a_number_whose_every_method_raises_is_replaced() -> None:
    assert HEIGHTS.check(Hostile(170)) == "replaced"
    assert VectorDomain((Coordinate(0.0, 1.0, name="x"),)).check([Hostile(1)]) == "replaced"


@pytest.mark.parametrize(
    "value",
    [True, False, "12", b"12", 1j, [1], np.True_, np.array([1.0]), pytest.param(object(), id="object()"), float],
    ids=repr,
)
def test_a_type_that_is_no_number_is_a_mistake_and_named_without_the_value(value: object) -> None:
    with pytest.raises(TypeError, match=f"the value is of type {type(value).__name__}, not a number|of type") as caught:
        HEIGHTS.check(value)
    assert "12" not in str(caught.value)
    assert HEIGHTS.read(value, strict=False) == HEIGHTS.nothing


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (119.999, 0),
        (-1e300, 0),
        (-math.inf, 0),
        (Decimal("-1e999999999999999999"), 0),
        (Fraction(-(10**400), 3), 0),
        (10**500, GRID_STEPS),
        (220.0001, GRID_STEPS),
        (math.inf, GRID_STEPS),
        (Decimal("inf"), GRID_STEPS),
        (Decimal("1e999999999"), GRID_STEPS),
        (np.longdouble("inf"), GRID_STEPS),
        (Foreign(1e300), GRID_STEPS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_number_beyond_a_bound_is_moved_there_however_large(value: object, end: int) -> None:
    reading = HEIGHTS.read(value)
    assert (reading.parts, reading.coercion) == ((end,), "moved")


HUGE = [10**400_000, -Fraction(10**400_000, 7), Decimal("9" * 400_000), Decimal("1e-999999999")]


@pytest.mark.timeout(20)  # they take milliseconds; to expand the exponent, or to cancel a fraction, would take minutes
@pytest.mark.parametrize("value", HUGE, ids=lambda value: type(value).__name__)
def test_the_work_on_a_huge_number_is_bounded_by_its_digits(value: object) -> None:
    assert NumberDomain(-1.0, 1.0).check(value) in ("used", "moved")


@given(st.fractions(100, 240), st.sampled_from([(120.0, 220.0), (0.0, 1.0), (-1e-300, 3e300), (0.1, 0.3)]))
def test_the_index_is_the_nearest_grid_point_exactly(value: Fraction, bounds: tuple[float, float]) -> None:
    lower, upper = map(Fraction, bounds)
    inside = min(max(value, lower), upper)
    reading = NumberDomain(*bounds).read(value)
    assert reading.parts == (round((inside - lower) / (upper - lower) * GRID_STEPS),)
    assert reading.moved == (inside != value)


@pytest.mark.parametrize("domain", [HEIGHTS, BitDomain(), CategoryDomain(("a", "b", "c"))])
def test_the_index_of_no_value_is_uniform_over_the_domain(domain: NumberDomain | BitDomain | CategoryDomain) -> None:
    class Asked:
        def randbelow(self, n: int, /) -> int:
            assert n == domain.sizes[0]
            return n - 1

        def token_bytes(self, count: int, /) -> bytes:
            raise AssertionError(count)

    assert domain.complete(domain.read(None), Asked()).scalar == domain.sizes[0] - 1
    with pytest.raises(ValueError, match="no index for this value"):
        domain.index(None)


class Counted:
    """Notes below what it is asked to draw."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def randbelow(self, n: int, /) -> int:
        self.asked.append(n)
        return 0

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError(count)


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (HEIGHTS, 150.0),
        (BitDomain(), True),
        (CategoryDomain(("a", "b", "c")), "b"),
        (VectorDomain((Coordinate(0, 1, name="x"), Coordinate(0, 2, name="y"))), [1, 2]),
    ],
)
def test_a_value_that_is_present_costs_the_draw_that_a_missing_one_takes(
    domain: Domain, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes it from elsewhere, so that the draws of the test vectors stay in their order."""
    spare, injected = Counted(), Counted()
    monkeypatch.setattr(reading, "_SPARE", spare)
    assert domain.complete(domain.read(value), injected) == domain.index(value)
    assert (spare.asked, injected.asked) == ([*domain.sizes], [])
    domain.complete(domain.read(None), injected)
    assert (spare.asked, injected.asked) == ([*domain.sizes], [*domain.sizes])


def test_a_vector_draws_as_much_whichever_part_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = VectorDomain((Coordinate(0, 1, name="x"), Coordinate(0, 2, name="y")))
    spare, injected = Counted(), Counted()
    monkeypatch.setattr(reading, "_SPARE", spare)
    assert domain.complete(domain.read([1, None]), injected) == Index((GRID_STEPS, 0))
    assert (len(spare.asked), len(injected.asked)) == (1, 1)


def test_the_bounds_themselves_are_inside() -> None:
    assert HEIGHTS.index(120.0).index == 0
    assert HEIGHTS.index(220.0).index == GRID_STEPS
    assert HEIGHTS.check(120.0) == HEIGHTS.check(220.0) == "used"


@given(st.floats(120, 220))
def test_rounding_moves_a_value_by_at_most_half_a_step(value: float) -> None:
    moved = HEIGHTS.value_of(HEIGHTS.index(value).scalar) - Fraction(value)
    assert abs(moved) <= HEIGHTS.step / 2


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_the_index_is_inside_and_monotone_for_any_two_floats(one: float, other: float) -> None:
    low, high = HEIGHTS.index(min(one, other)).scalar, HEIGHTS.index(max(one, other)).scalar
    assert 0 <= low <= high <= GRID_STEPS


def test_the_narrowest_and_the_widest_ranges_index_exactly() -> None:
    for lower, upper in ((0.0, 5e-324), (-8e307, 8e307), (1e16, 1e16 + 2)):
        domain = NumberDomain(lower, upper)
        assert domain.index(upper).index == GRID_STEPS
        assert domain.value_of(GRID_STEPS) == Fraction(upper)


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
def test_bounds_that_make_no_range_are_refused_by_name(lower: float, upper: float, field: str) -> None:
    with pytest.raises(TaskError) as caught:
        NumberDomain(lower, upper)
    assert caught.value.field == field


@pytest.mark.parametrize(("value", "index"), [(True, 1), (False, 0), (1, 1), (0, 0)])
def test_a_bit_is_yes_or_no(value: object, index: int) -> None:
    assert BitDomain().index(value).index == index


@pytest.mark.parametrize("value", [np.True_, np.int8(1)])
def test_a_bit_may_come_from_numpy(value: object) -> None:
    assert BitDomain().index(value).index == 1


@pytest.mark.parametrize("value", [2, -1, 10**500, None, math.nan])
def test_an_integer_that_is_no_bit_is_replaced(value: object) -> None:
    assert BitDomain().check(value) == "replaced"


@pytest.mark.parametrize("value", [1.0, "yes", [1]])
def test_another_type_is_no_bit(value: object) -> None:
    with pytest.raises(TypeError, match="not yes or no"):
        BitDomain().check(value)


# ---- categories

COLOURS = CategoryDomain(("red", "green", "blue"))


def test_a_label_becomes_its_place() -> None:
    assert [COLOURS.index(label).index for label in COLOURS.labels] == [0, 1, 2]
    assert COLOURS.check("red") == "used"


class Label(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError(SECRET)

    def __hash__(self) -> int:
        raise ValueError(SECRET)


def test_a_label_of_a_class_of_its_own_is_read_as_the_text_that_it_is() -> None:
    assert COLOURS.index(Label("green")).index == 1


@pytest.mark.parametrize("value", ["Red", "red ", "", "secret", None, math.nan], ids=repr)
def test_what_is_no_label_is_replaced(value: object) -> None:
    assert COLOURS.check(value) == "replaced"


@pytest.mark.parametrize("value", [0, True, b"red", ["red"], ("red",), 1.5], ids=repr)
def test_another_type_is_no_label(value: object) -> None:
    with pytest.raises(TypeError, match="not a label"):
        COLOURS.check(value)


def test_a_label_may_stand_for_all_texts_that_are_none() -> None:
    ways = CategoryDomain(("bus", "train", "else"), other="else")
    assert [(ways.read(way).parts, ways.check(way)) for way in ("bus", "else", "tram")] == [
        ((0,), "used"),
        ((2,), "used"),
        ((2,), "moved"),
    ]
    assert ways.check(None) == "replaced"
    with pytest.raises(TaskError, match="is not one of the labels"):
        CategoryDomain(("bus", "train"), other="else")


# ---- vectors

BODY = VectorDomain((Coordinate(0.0, 1.0, name="x"), Coordinate(-10.0, 10.0, name="y")))


@pytest.mark.parametrize(
    "value",
    [[0.5, 10], (Decimal("0.5"), 10.0), {"y": 10, "x": 0.5}, {"x": Fraction(1, 2), "y": np.float64(10)}],
    ids=repr,
)
def test_a_vector_becomes_an_index_for_each_coordinate(value: object) -> None:
    assert BODY.index(value).index == (GRID_STEPS // 2, GRID_STEPS)


def test_one_coordinate_outside_its_bounds_is_told() -> None:
    assert [BODY.check(value) for value in ([2, 0], [1, 0], [0, 11], [0, None])] == [
        "moved",
        "used",
        "moved",
        "replaced",
    ]


def test_an_index_of_several_integers_is_no_scalar() -> None:
    with pytest.raises(TypeError):
        _ = BODY.index([0, 0]).scalar


HALF, UP = GRID_STEPS // 2, GRID_STEPS


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
def test_a_vector_lacks_the_numbers_that_it_has_not(value: object, parts: tuple[int | None, ...]) -> None:
    assert BODY.read(value).parts == parts


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        "0.5,1",
        b"01",
        [[0.5], [1]],
        ["0.5", 1],
        {0.5, 1},
        pytest.param(iter([0.5, 1]), id="an iterator"),
        np.ones((2, 2)),
    ],
    ids=str,
)
def test_another_type_is_no_vector(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        BODY.check(value)
    assert "0.5" not in str(caught.value)
    assert BODY.read(value, strict=False).coercion == "replaced"
