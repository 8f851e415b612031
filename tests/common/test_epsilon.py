"""Epsilon is exact, and every integer made of it errs towards more privacy."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_common.epsilon import (
    WEIGHT_OF_TRUTH,
    at_most_sure,
    certified_exp,
    decimal_text,
    float_at_most,
    log_ceiling,
    parse_epsilon,
    posterior,
    weight_of_lie,
)
from hush_common.errors import EpsilonError
from hush_common.formatting import percent_at_most

EPSILONS = st.decimals("0.000001", "50", places=6).map(Fraction)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", Fraction(1)),
        ("0.1", Fraction(1, 10)),
        ("1e-6", Fraction(1, 10**6)),
        (4, Fraction(4)),
        ("50", Fraction(50)),
    ],
)
def test_decimal_text_is_read_exactly(text: object, value: Fraction) -> None:
    assert parse_epsilon(text) == value


@pytest.mark.parametrize(
    "bad",
    [
        *(0, "0", "-1", "60", "50.000001", "1e-9", "0.0000009", "nan", "inf", "", " 1", "1/3", "1_0", "1e99", "\u0663"),
        *("1" * 1000, "0." + "1" * 19, 0.5, 1.0, True, None, b"1", [1]),
    ],
)
def test_anything_else_is_refused_with_the_value_in_one_short_line(bad: object) -> None:
    with pytest.raises(EpsilonError) as caught:
        parse_epsilon(bad)
    assert caught.value.field == "epsilon"
    assert str(bad)[:10].strip() in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("text", ["-1", "-0.5", "-1e-3", "60", "1000", "1234.5", -1])
def test_a_number_that_is_too_small_or_too_large_is_not_said_to_be_none(text: object) -> None:
    with pytest.raises(EpsilonError, match=r"is outside \[0\.000001, 50\]"):
        parse_epsilon(text)


@pytest.mark.parametrize("text", ["--1", "1,5", "0001", ".5", "-", "1/3"])
def test_what_is_written_in_another_form_is_no_decimal_number(text: str) -> None:
    with pytest.raises(EpsilonError, match="is not a decimal number"):
        parse_epsilon(text)


@given(EPSILONS)
def test_text_and_fraction_are_the_same_number(epsilon: Fraction) -> None:
    assert parse_epsilon(decimal_text(epsilon)) == epsilon


def test_a_fraction_without_decimal_text_is_written_as_a_fraction() -> None:
    assert decimal_text(Fraction(1, 3)) == "1/3"
    assert decimal_text(Fraction(1, 8)) == "0.125"
    assert decimal_text(Fraction(100)) == "100"


@given(EPSILONS)
def test_the_bounds_of_the_exponential_enclose_it_tightly(epsilon: Fraction) -> None:
    low, high = certified_exp(epsilon)
    with localcontext() as context:
        context.prec = 100
        reference = Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp())
    slack = reference / 10**90  # the reference itself is rounded
    assert low - slack <= reference <= high + slack
    assert low <= high <= low + Fraction(1, 1 << 400)


def test_the_exponential_refuses_what_its_remainder_bound_does_not_cover() -> None:
    for outside in (Fraction(-1, 10), Fraction(65)):
        with pytest.raises(ValueError, match="outside"):
            certified_exp(outside)


@given(EPSILONS)
def test_truth_to_lie_never_exceeds_e_to_the_epsilon_and_comes_within_one_unit(epsilon: Fraction) -> None:
    low, high = certified_exp(epsilon)
    lie = weight_of_lie(epsilon)
    assert Fraction(WEIGHT_OF_TRUTH, lie) <= low
    assert Fraction(WEIGHT_OF_TRUTH, lie - 1) >= high  # one unit less would already break the promise


def test_the_weights_of_common_epsilons_are_pinned() -> None:
    assert weight_of_lie(Fraction(1)) == 125182886983370532117250726298150828302
    assert weight_of_lie(Fraction(1, 10)) == 307900218287906978086884547973715191812
    assert weight_of_lie(Fraction(4)) == 6232488952727653950957829210887653622


def test_the_logarithm_is_rounded_up_never_down() -> None:
    assert log_ceiling(Fraction(3)) == Fraction("1.098613")
    assert log_ceiling(Fraction(9)) == Fraction("2.197225")
    for ratio in (Fraction(3), Fraction(101, 100), Fraction(10**20)):
        rounded = log_ceiling(ratio)
        assert certified_exp(rounded)[0] >= ratio
        assert certified_exp(rounded - Fraction(1, 10**6))[1] < ratio


def test_a_ratio_without_a_positive_or_admissible_logarithm_is_refused() -> None:
    for ratio in (Fraction(1), Fraction(1, 2), Fraction(10**22)):
        with pytest.raises(ValueError, match=r"logarithm|exceeds"):
            log_ceiling(ratio)


@pytest.mark.parametrize(
    ("epsilon", "from_half", "from_one_percent"),
    [
        ("0", "50.0 %", "1.0 %"),
        ("0.000001", "50.1 %", "1.1 %"),
        ("0.1", "52.5 %", "1.2 %"),
        ("0.5", "62.3 %", "1.7 %"),
        ("1", "73.2 %", "2.7 %"),
        ("2", "88.1 %", "7.0 %"),
        ("4", "98.3 %", "35.6 %"),
        ("8", "99.97 %", "96.8 %"),
        ("50", "more than 99.99999999 %", "more than 99.99999999 %"),
        ("65", "more than 99.99999999 %", "more than 99.99999999 %"),
        ("1000000", "more than 99.99999999 %", "more than 99.99999999 %"),
    ],
)
def test_what_an_observer_can_infer_is_rounded_up_and_never_to_certainty(
    epsilon: str, from_half: str, from_one_percent: str
) -> None:
    assert percent_at_most(at_most_sure(Fraction(epsilon))) == from_half
    assert percent_at_most(at_most_sure(Fraction(epsilon), Fraction(1, 100))) == from_one_percent


@given(EPSILONS, st.fractions(0, 1))
def test_the_bound_of_what_can_be_inferred_is_above_bayes_rule_and_tight(epsilon: Fraction, prior: Fraction) -> None:
    with localcontext() as context:
        context.prec = 120
        odds = (Decimal(epsilon.numerator) / epsilon.denominator).exp() * prior.numerator
        exact = odds / (odds + prior.denominator - prior.numerator)
    bound = at_most_sure(epsilon, prior)
    assert Fraction(exact) - Fraction(1, 10**100) <= bound <= Fraction(exact) + Fraction(1, 10**80)
    assert 0 <= bound <= 1


def test_a_share_is_rounded_up_to_a_float_and_never_above_one() -> None:
    assert float_at_most(Fraction(1)) == 1.0
    assert float_at_most(1 - Fraction(1, 1 << 90)) == 1.0
    for share in (Fraction(0), Fraction(1, 3), Fraction(2, 3)):
        assert share < Fraction(float_at_most(share)) < share + Fraction(1, 1 << 51)


def test_the_number_for_programs_is_that_of_the_bound() -> None:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(20)):
        assert posterior(epsilon) == pytest.approx(float(at_most_sure(epsilon)), rel=1e-15)
