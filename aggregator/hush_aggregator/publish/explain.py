"""Explain what a task means for privacy. No numpy: `hush task check` is quick."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from hush_aggregator.publish.ports import PORTS, answered_by, memory_words, refusals_of
from hush_common.epsilon import WEAK_ABOVE, at_most_sure, certified_exp, decimal_text, posterior
from hush_common.formatting import at_most, duration, exact, percent_at_most, significant, whole
from hush_common.mechanisms import Offers
from hush_common.mechanisms.registry import best, fitting
from hush_common.task import Task
from hush_common.terminal import Column, Fact, Facts, Renderable, Row, Sentence, Table

EVEN = Fraction(1, 2)
"""Of an observer who holds two answers to be equally likely."""

_ENDLESS = "more than"  # how `percent_at_most` begins where no decimals suffice
_FINE = Fraction(1, 100)
_LARGE = 10**6


@dataclass(frozen=True, slots=True)
class PrivacyLoss:
    """What somebody can conclude from some of the reports of one device."""

    what: str  # from which reports, to begin a sentence with: "From all 12 rounds together"
    epsilon: Fraction  # what these lose together
    besides: str = ""  # what they reveal that no epsilon covers; empty for nothing

    @property
    def bound(self) -> Fraction:
        """How sure an observer who was fifty-fifty can be at most, as a share."""
        return at_most_sure(self.epsilon)

    @property
    def sentence(self) -> str:
        """The whole of it, for a person."""
        besides = f" {self.besides}" if self.besides else ""
        return f"{self.what}, somebody who guessed fifty-fifty can become {certainty(self.epsilon)}.{besides}"

    @property
    def weak(self) -> bool:
        """Whether that hides little."""
        return self.epsilon > WEAK_ABOVE


def certainty_percent(epsilon: Fraction, prior: Fraction = EVEN) -> str:
    """What chance an observer can give one of two answers at most: "73.2 %". Rounded up, and never to certainty."""
    return percent_at_most(at_most_sure(epsilon, prior))


def certainty(epsilon: Fraction, prior: Fraction = EVEN) -> str:
    """The same in words: "at most 73.2 % sure", and where no decimals suffice "as good as certain"."""
    chance = certainty_percent(epsilon, prior)
    return f"as good as certain: {chance}" if chance.startswith(_ENDLESS) else f"at most {chance} sure"


def from_to(epsilon: Fraction, prior: Fraction) -> tuple[str, str]:
    """A chance before, and the largest that it can become: "1 %", "2.7 %"."""
    return f"{at_most(100 * prior, 0)} %", certainty_percent(epsilon, prior)


def factor(epsilon: Fraction) -> str:
    """By how much the odds between two answers change at most, rounded up: "2.72 times", "5.2 · 10^21 times"."""
    upper = certified_exp(epsilon)[1]
    if upper >= _LARGE:
        power = len(str(int(upper))) - 1
        return f"{at_most(upper / 10**power, 1)} · 10^{power} times"
    return f"{at_most(upper, 2 if epsilon >= _FINE else 7)} times"


def largest_loss(task: Task) -> PrivacyLoss:
    """The most that can be concluded: from everything a device ever sends for the task, under its dearest offer."""
    return next(privacy_losses(task))


def privacy_losses(task: Task) -> Iterator[PrivacyLoss]:
    """What can be concluded, the most first: from all rounds and from one, and under each offer."""
    rounds = whole(task.rounds)
    for epsilon in reversed(task.offers or (task.epsilon,)):
        choice = f" (if it chose the offer of {decimal_text(epsilon)})" if task.offers else ""
        if task.rounds == 1:
            yield PrivacyLoss(f"From your device's answer{choice}", epsilon)
        elif task.repeat == "sticky":
            changes = "They can also see in which rounds your answer changed, and no number bounds that."
            yield PrivacyLoss(f"From all {rounds} rounds together", epsilon, changes)
            yield PrivacyLoss("From all rounds together, if your answer never changes", epsilon / task.draws)
        else:
            yield PrivacyLoss(f"From all {rounds} rounds together{choice}", epsilon)
            yield PrivacyLoss(f"From one round{choice}", epsilon / task.draws)


_ONCE = {"1 day": "once a day", "1 h": "once an hour", "1 min": "once a minute"}


def how_often(every: timedelta) -> str:
    """Return "once a day", or "once every 12 h"."""
    words = duration(every)
    return _ONCE.get(words, f"once every {words}")


def release_rule(task: Task) -> str:
    """When figures of a task are published, for a person; empty without a rule."""
    first = ""
    if task.release_from is not None:
        reports = "1 report" if task.release_from == 1 else f"{whole(task.release_from)} reports"
        first = f"once {'a round has' if task.rounds > 1 else 'there are'} {reports}"
    if task.release_every is None:
        return f"Figures are published {first}, and not before." if first else ""
    times = f"{how_often(task.release_every)}, at fixed times (UTC), and at no other time"
    return f"Figures are published {times}{f'; the first {first}' if first else ''}."


def retention_rule(task: Task) -> str:
    """How long reports of a task are stored, for a person; empty without a rule."""
    if task.retention is None:
        return ""
    return f"for {duration(task.retention)} after {'their round' if task.rounds > 1 else 'the task'} is over"


_CONFIDENCE = 0.95
PEOPLE = (100, 1_000, 10_000)
"""How many people an expected error is stated for."""


def warnings(task: Task, now: datetime) -> Iterator[str]:
    """Warnings about a weak epsilon, and about a task that nobody answers any more at `now` (aware)."""
    if task.epsilon > WEAK_ABOVE:
        yield (
            f"warning: epsilon {decimal_text(task.epsilon)} is above {decimal_text(WEAK_ABOVE)}, so that an answer "
            f"hides little; a smaller epsilon and more people give the same error"
        )
    if task.closes is not None and task.closes <= now:
        yield (
            f"warning: the task closed at {_name_moment(task.closes)}, and no device answers it any more; a later "
            f"closes needs a new id where the task was published"
        )
    if task.release_from is not None and task.enrolled is not None and task.release_from > task.enrolled:
        yield (
            f"warning: release_from {task.release_from} is more than the {task.enrolled} devices that are enrolled, so "
            f"that no figures are ever published; lower it"
        )


def expected_error(task: Task, people: int) -> float:
    """Half-width at 95 % of the mean of `people` answers, from the noise alone, by the normal approximation.

    In the unit of the domain; for a bit or a category, as a proportion (at the answer that varies more); for a vector,
    as a share of the range of any one coordinate. With several epsilons, as if all took the largest.
    """
    randomizer = task.randomizer
    mechanism = randomizer.parts[-1] if isinstance(randomizer, Offers) else randomizer
    error = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * math.sqrt(mechanism.worst_variance / people)
    lower, upper = task.domain.parts[0].axis
    return error if task.domain.parts_field else error * float(upper - lower)


def alternatives(task: Task) -> dict[str, float]:
    """How many times as many people the other mechanisms of a domain need for the same error, noise alone.

    At the epsilon of this task, each with its best parameters, at the value that is worst for it. Empty where a domain
    has one mechanism, and where devices choose among several epsilons or repeat their answers.
    """
    own, epsilon = task.randomizer, task.epsilon_per_round
    if isinstance(own, Offers) or task.repeat == "sticky":
        return {}
    others = [kind for kind in fitting(task.domain) if kind.name != own.name and kind.serves([epsilon])]
    return {kind.name: best(kind, task.domain, epsilon).worst_variance / own.worst_variance for kind in others}


def meaning(task: Task) -> dict[str, Any]:
    """The facts for a program: the published fields, and what follows from them."""
    facts = json.loads(task.payload) | {
        "digest": task.digest.hex(),
        "epsilon_per_round": decimal_text(task.epsilon_per_round),
        "posterior": posterior(task.epsilon),
        "posterior_per_round": posterior(task.epsilon_per_round),
        "weak": task.epsilon > WEAK_ABOVE,
        "expected_error": {str(people): expected_error(task, people) for people in PEOPLE},
        "expected_error_is": "95 %, one round, noise of the mechanism alone, normal approximation",
    }
    refusals = refusals_of(task)
    facts["answered_by"] = [port for port in PORTS if port not in refusals]
    if refusals:
        facts["not_answered_by"] = refusals
    if others := alternatives(task):
        facts["alternatives"] = others
    if task.domain.step is not None:
        facts["grid_step"] = float(task.domain.step)
    return dict(facts)


def blocks(task: Task) -> Iterator[Renderable]:
    """The facts for a person."""
    rows = [
        ("task", task.id),
        ("title", task.title),
        ("purpose", task.purpose),
        ("asks for", task.domain.question),
        ("grid step", _step(task)),
        ("mechanism", task.mechanism),
        ("alternatives", _alternatives(task)),
        ("epsilon", _price(task)),
        ("an observer", _observer(task)),
        ("rounds", _rounds(task)),
        ("opens", "always open" if task.opens is None else _name_moment(task.opens)),
        ("closes", "never" if task.closes is None else _name_moment(task.closes)),
        ("released", release_rule(task)),
        ("reports stored", retention_rule(task)),
        ("answered by", answered_by(task)),
        ("memory", memory_words(task)),
        ("digest", task.digest.hex()),
    ]
    yield Facts([Fact(label, words) for label, words in rows if words])
    yield Sentence("")
    confidence = f"{exact(_CONFIDENCE, scale=100)} %"
    yield Sentence(f"Error to expect in the mean ({confidence}, one round; noise alone, normal approximation):")
    amounts = [(people, *expected_words(task, people)) for people in PEOPLE]
    columns = [Column("people", right=True), Column("error", right=True)]
    columns += [Column("of the range", right=True)] if amounts[0][2] else []
    yield Table(columns, [Row([whole(people), *filter(None, words)]) for people, *words in amounts])


def _alternatives(task: Task) -> str:
    needs = [f"{name} needs {significant(ratio)} times as many people" for name, ratio in alternatives(task).items()]
    return f"{', '.join(needs)} for the same error for the reporters" if needs else ""


def _name_moment(moment: datetime) -> str:
    """Return a time with its date, without seconds if they are zero: `2026-01-01 12:00 UTC`."""
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return f"{text.removesuffix(':00')} UTC"


def _price(task: Task) -> str:
    total = decimal_text(task.epsilon)
    if task.rounds == 1:
        choice = ", ".join(map(decimal_text, task.offers))
        return (
            f"{total} (a device answers once)"
            if not task.offers
            else f"a device chooses one of {choice}, and answers once"
        )
    if task.repeat == "sticky":
        slots = f"{task.draws} reports drawn at the start, {decimal_text(task.epsilon_per_round)} each"
        return f"{total}, charged with the first answer, for {slots}, which all {whole(task.rounds)} rounds repeat"
    return f"{total} for all {whole(task.rounds)} rounds together, {decimal_text(task.epsilon_per_round)} per round"


def _observer(task: Task) -> str:
    all_of_it = f"who was 50/50 between two values becomes {certainty(task.epsilon)}"
    if task.rounds == 1:
        return all_of_it
    single = certainty_percent(task.epsilon_per_round)
    if task.repeat == "sticky":
        return f"{all_of_it} from all rounds, {single} if the value never changes, and can see in which rounds it did"
    return f"{all_of_it} from all rounds, {single} from one"


def _rounds(task: Task) -> str:
    if task.round_every is None or task.rounds == 1:
        return str(task.rounds)
    return f"{whole(task.rounds)}, one every {duration(task.round_every)}"


def _step(task: Task) -> str:
    step = task.domain.step
    return "" if step is None else f"{significant(step)} {task.unit}".rstrip()


def expected_words(task: Task, people: int) -> tuple[str, str]:
    """The expected error with its unit, "± 8.8 cm"; of a number also as a share of its range."""
    error = expected_error(task, people)
    if task.domain.is_share:
        return f"± {significant(error, scale=100)} points", ""
    if task.domain.parts_field:
        return f"± {significant(error, scale=100)} % of the range of each number", ""
    lower, upper = task.domain.parts[0].axis
    return f"± {significant(error)} {task.unit}".rstrip(), f"{significant(error / (upper - lower), scale=100)} %"
