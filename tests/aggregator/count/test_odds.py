"""Each sentence about odds is recomputed from ε, by an independent judge, and is never better than the truth."""

import re
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest

from hush_aggregator.explain import EVEN, certainty, factor, from_to, largest_loss, privacy_losses
from hush_aggregator.http.page.pages import render_index
from hush_aggregator.http.page.view import TaskListing, TaskSearch, TaskView
from hush_aggregator.store.base import Origin, TaskState
from hush_common.epsilon import parse_epsilon
from hush_common.task import make_task

EPSILONS = ["0.000001", "0.1", "1", "4", "17", "50"]
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
ROUNDS = {"rounds": 12, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}


def exact_certainty(epsilon: Fraction | str, prior: Fraction = EVEN) -> mpmath.mpf:
    """What Bayes' rule gives at most, in per cent."""
    with mpmath.workdps(80):
        before = mpmath.mpf(prior.numerator) / prior.denominator
        odds = before * mpmath.exp(mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator)
        return 100 * odds / (odds + 1 - before)


def stated(sentence: str) -> tuple[bool, Fraction]:
    """Whether the number in a sentence is an upper bound, and that number."""
    found = re.search(r"(at most|more than) ([0-9.]+) %", sentence)
    assert found, sentence
    return found[1] == "at most", Fraction(found[2])


def check(sentence: str, epsilon: Fraction | str, prior: Fraction = EVEN) -> None:
    bounded, percent = stated(sentence)
    truth = exact_certainty(epsilon, prior)
    shown = mpmath.mpf(percent.numerator) / percent.denominator
    assert "100 %" not in sentence
    if bounded:
        assert truth <= shown <= 100
        assert shown - truth < (100 - truth) / 2 + mpmath.mpf("0.1")  # rounded up in its last digit, no more
    else:
        assert shown < truth
        assert "as good as certain" in sentence


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_certainty_is_what_bayes_gives_rounded_up_and_never_a_hundred_per_cent(epsilon: str) -> None:
    check(certainty(parse_epsilon(epsilon)), epsilon)
    task = make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER})
    check(largest_loss(task).sentence, epsilon)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    view = TaskView(task, TaskState.OPEN, Origin.FILE, ended=False, now=now)
    page = render_index(TaskListing(TaskSearch(), [view], 1, 1, 1), "/", now)
    check(page.partition('class="promise')[2].partition("</li>")[0], epsilon)


def test_the_usual_ones_read_as_they_are_known() -> None:
    told = {text: certainty(Fraction(text)) for text in ("0.1", "1", "4")}
    assert told == {"0.1": "at most 52.5 % sure", "1": "at most 73.2 % sure", "4": "at most 98.3 % sure"}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("prior", [Fraction(1, 100), EVEN, Fraction(9, 10)])
def test_so_is_what_follows_from_any_other_guess(epsilon: str, prior: Fraction) -> None:
    before, after = from_to(parse_epsilon(epsilon), prior)
    assert Fraction(before.removesuffix(" %")) == 100 * prior
    check(f"as good as certain: {after}" if after.startswith("more than") else f"at most {after}", epsilon, prior)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_factor_of_the_odds_is_e_to_epsilon_rounded_up(epsilon: str) -> None:
    text = factor(parse_epsilon(epsilon)).removesuffix(" times")
    mantissa, _, power = text.partition(" · 10^")
    with mpmath.workdps(60):
        shown = mpmath.mpf(mantissa.replace(" ", "")) * mpmath.mpf(10) ** int(power or 0)
        truth = mpmath.exp(mpmath.mpf(epsilon))
        assert truth <= shown <= truth * mpmath.mpf("1.1")


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_all_rounds_together_come_first_and_one_round_has_its_share(epsilon: str) -> None:
    total = parse_epsilon(epsilon)
    if total / 12 < parse_epsilon("0.000001"):
        total *= 12
    text = f"{float(total):.6f}".rstrip("0").rstrip(".")
    task = make_task({"id": "t", "epsilon": text, "domain": NUMBER, **ROUNDS})
    together, single = privacy_losses(task)
    assert (together.epsilon, single.epsilon) == (total, total / 12)
    assert together.what == "From all 12 rounds together"
    check(together.sentence, total)
    check(single.sentence, total / 12)
    assert largest_loss(task) == together


def test_the_dearest_offer_comes_first_and_each_has_its_sentence() -> None:
    offers = ["0.000001", "1", "50"]
    task = make_task({"id": "t", "epsilon": "50", "offers": offers, "domain": NUMBER})
    found = list(privacy_losses(task))
    assert [loss.epsilon for loss in found] == [parse_epsilon(offer) for offer in reversed(offers)]
    for loss, offer in zip(found, reversed(offers), strict=True):
        assert f"(if it chose the offer of {offer})" in loss.sentence
        check(loss.sentence, offer)


def test_offers_in_rounds_have_both() -> None:
    task = make_task({"id": "t", "epsilon": "6", "offers": ["3", "6"], "domain": NUMBER, **ROUNDS})
    assert [loss.epsilon for loss in privacy_losses(task)] == [Fraction(6), Fraction(1, 2), Fraction(3), Fraction(1, 4)]
    for loss in privacy_losses(task):
        check(loss.sentence, loss.epsilon)


def test_repeated_answers_say_that_a_change_shows_and_that_no_number_bounds_it() -> None:
    draft = {"id": "t", "epsilon": "2", "domain": NUMBER, "mechanism": "multilevel", "repeat": "sticky", **ROUNDS}
    task = make_task(draft)
    together, unchanged = privacy_losses(task)
    check(together.sentence, "2")
    check(unchanged.sentence, Fraction(2) / task.draws)
    assert "in which rounds your answer changed, and no number bounds that" in together.sentence
    assert not unchanged.besides


def test_a_weak_epsilon_is_called_weak() -> None:
    weak = [
        epsilon
        for epsilon in EPSILONS
        if largest_loss(make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER})).weak
    ]
    assert weak == ["17", "50"]


def test_the_guide_for_people_states_the_same() -> None:
    text = (Path(__file__).parents[3] / "docs/people.md").read_text(encoding="utf-8")
    said = set(re.findall(r"[0-9.]+ %", re.sub(r"\s+", " ", text))) - {"50 %", "100 %"}
    assert said == {"73.2 %"}
    assert certainty(Fraction(1)) == "at most 73.2 % sure"
    assert "That number holds for a task with epsilon 1." in text
