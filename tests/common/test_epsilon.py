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


def test_decimal_text_is_read_exactly() -> None:
    assert [parse_epsilon(text) for text in ("1", "0.1", "1e-6", 4, "50")] == [
        *(Fraction(1), Fraction(1, 10), Fraction(1, 10**6), Fraction(4), Fraction(50)),
    ]


OUTSIDE = ("-1", "-0.5", "-1e-3", "60", "1000", "1234.5", -1, 0, "0", "50.000001", "1e-9", "0.0000009", "1" * 1000)
NOT_DECIMAL = (
    *("nan", "inf", "", " 1", "1/3", "1_0", "1e99", "\u0663", "0." + "1" * 19, "--1", "1,5", "0001", ".5"),
    *(0.5, 1.0, True, None, b"1", [1], "-"),
)


@pytest.mark.parametrize("bad", [*OUTSIDE, *NOT_DECIMAL], ids=lambda bad: repr(bad)[:12])
def test_another_epsilon_is_refused_with_the_value_in_one_line(bad: object) -> None:
    with pytest.raises(EpsilonError) as caught:
        parse_epsilon(bad)
    assert caught.value.field == "epsilon"
    assert str(bad)[:10].strip() in str(caught.value)
    assert ("[0.000001, 50]" in str(caught.value)) == (bad in OUTSIDE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 150


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


@pytest.mark.medium
@given(EPSILONS)
def test_truth_to_lie_is_e_to_the_epsilon_less_at_most_one_unit(epsilon: Fraction) -> None:
    low, high = certified_exp(epsilon)
    lie = weight_of_lie(epsilon)
    assert Fraction(WEIGHT_OF_TRUTH, lie) <= low
    assert Fraction(WEIGHT_OF_TRUTH, lie - 1) >= high  # one unit less would already break the promise


def test_the_weights_of_common_epsilons_never_change() -> None:
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
        ("1", "73.2 %", "2.7 %"),
        ("4", "98.3 %", "35.6 %"),
        ("8", "99.97 %", "96.8 %"),
    ],
)
def test_what_an_observer_can_infer_is_rounded_up(epsilon: str, from_half: str, from_one_percent: str) -> None:
    assert percent_at_most(at_most_sure(Fraction(epsilon))) == from_half
    assert percent_at_most(at_most_sure(Fraction(epsilon), Fraction(1, 100))) == from_one_percent


def test_what_an_observer_can_infer_is_never_certain() -> None:
    for epsilon in ("50", "65", "1000000"):
        for prior in (Fraction(1, 2), Fraction(1, 100)):
            assert "99.99999999 %" in percent_at_most(at_most_sure(Fraction(epsilon), prior))


@pytest.mark.medium
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
