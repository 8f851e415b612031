"""Each sentence about odds is recomputed from ε, by an independent judge, and is never better than the truth."""

import re
from fractions import Fraction

import mpmath
import pytest

from hush_aggregator.publish.explain import EVEN, certainty, factor, from_to, largest_loss, privacy_losses
from hush_common.epsilon import parse_epsilon
from hush_common.task import make_task

EPSILONS = ["0.000001", "0.1", "1", "4", "17", "50"]
DRAFT = {"id": "t", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
ROUNDS = {"rounds": 12, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}


def exact_certainty(epsilon: Fraction | str, prior: Fraction = EVEN) -> mpmath.mpf:
    """What Bayes' rule gives at most, in per cent."""
    with mpmath.workdps(80):
        before = mpmath.mpf(prior.numerator) / prior.denominator
        odds = before * mpmath.exp(mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator)
        return 100 * odds / (odds + 1 - before)


def check(sentence: str, epsilon: Fraction | str, prior: Fraction = EVEN) -> None:
    """Compare the bound in a sentence with the truth: rounded up in its last digit, and never 100 %."""
    found = re.search(r"(at most|more than) ([0-9.]+) %", sentence)
    assert found, sentence
    truth, percent = exact_certainty(epsilon, prior), Fraction(found[2])
    shown = mpmath.mpf(percent.numerator) / percent.denominator
    assert "100 %" not in sentence
    if found[1] == "at most":
        assert truth <= shown <= 100
        assert shown - truth < (100 - truth) / 2 + mpmath.mpf("0.1")
    else:
        assert shown < truth
        assert "certain" in sentence


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_certainty_is_what_bayes_gives_rounded_up(epsilon: str) -> None:
    check(certainty(parse_epsilon(epsilon)), epsilon)
    largest = largest_loss(make_task(DRAFT | {"epsilon": epsilon}))
    check(largest.sentence, epsilon)
    assert largest.weak is (float(epsilon) > 4)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("prior", [Fraction(1, 100), EVEN, Fraction(9, 10)])
def test_so_is_what_follows_from_any_other_guess(epsilon: str, prior: Fraction) -> None:
    before, after = from_to(parse_epsilon(epsilon), prior)
    assert Fraction(before.removesuffix(" %")) == 100 * prior
    check(f"certain: {after}" if after.startswith("more than") else f"at most {after}", epsilon, prior)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_factor_of_the_odds_is_e_to_epsilon_rounded_up(epsilon: str) -> None:
    mantissa, _, power = factor(parse_epsilon(epsilon)).removesuffix(" times").partition(" · 10^")
    with mpmath.workdps(60):
        shown = mpmath.mpf(mantissa.replace(" ", "")) * mpmath.mpf(10) ** int(power or 0)
        truth = mpmath.exp(mpmath.mpf(epsilon))
        assert truth <= shown <= truth * mpmath.mpf("1.1")


@pytest.mark.parametrize("epsilon", ["0.000012", "1.2", "48"])
def test_all_rounds_together_come_first_and_one_round_has_its_share(epsilon: str) -> None:
    total = parse_epsilon(epsilon)
    task = make_task({**DRAFT, "epsilon": epsilon, **ROUNDS})
    together, single = privacy_losses(task)
    assert (together.epsilon, single.epsilon) == (total, total / 12)
    assert "12" in together.what
    check(together.sentence, total)
    check(single.sentence, total / 12)
    assert largest_loss(task) == together


def test_the_dearest_offer_comes_first_also_in_rounds() -> None:
    offers = ["0.000001", "1", "50"]
    found = list(privacy_losses(make_task({**DRAFT, "epsilon": "50", "offers": offers})))
    assert [loss.epsilon for loss in found] == [parse_epsilon(offer) for offer in reversed(offers)]
    for loss, offer in zip(found, reversed(offers), strict=True):
        assert offer in loss.sentence
        check(loss.sentence, offer)
    found = list(privacy_losses(make_task({**DRAFT, "epsilon": "6", "offers": ["3", "6"], **ROUNDS})))
    assert [loss.epsilon for loss in found] == [Fraction(6), Fraction(1, 2), Fraction(3), Fraction(1, 4)]
    for loss in found:
        check(loss.sentence, loss.epsilon)


def test_repeated_answers_reveal_a_change_beyond_any_number() -> None:
    sticky = {"epsilon": "2", "mechanism": "multilevel", "repeat": "sticky"}
    task = make_task({**DRAFT, **sticky, **ROUNDS})
    together, unchanged = privacy_losses(task)
    check(together.sentence, "2")
    check(unchanged.sentence, Fraction(2) / task.draws)
    assert "changed" in together.sentence
    assert not unchanged.besides
