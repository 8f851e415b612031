"""Odds: what an epsilon means for the person who answers, in sentences without symbols. Each number is rounded up."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from hush_common.epsilon import WEAK_ABOVE, at_most_sure, certified_exp, decimal_text
from hush_common.formatting import at_most, percent_at_most, whole
from hush_common.task import Task

__all__ = ["EVEN", "Loss", "dearest", "factor", "from_to", "losses", "percent", "sure"]

EVEN = Fraction(1, 2)
"""Of an observer who holds two answers to be equally likely."""

_ENDLESS = "more than"  # how `percent_at_most` begins where no decimals suffice
_FINE = Fraction(1, 100)
_LARGE = 10**6


@dataclass(frozen=True, slots=True)
class Loss:
    """What somebody can conclude from some of the reports of one device.

    Args:
        what: from which reports, to begin a sentence with: "From all 12 rounds together".
        epsilon: what these lose together.
        besides: what they reveal that no epsilon covers; empty for nothing.
    """

    what: str
    epsilon: Fraction
    besides: str = ""

    @property
    def bound(self) -> Fraction:
        """How sure an observer who was fifty-fifty can be at most, as a share."""
        return at_most_sure(self.epsilon)

    @property
    def sentence(self) -> str:
        """The whole of it, for a person."""
        besides = f" {self.besides}" if self.besides else ""
        return f"{self.what}, somebody who guessed fifty-fifty can become {sure(self.epsilon)}.{besides}"

    @property
    def weak(self) -> bool:
        """Whether that hides little."""
        return self.epsilon > WEAK_ABOVE


def percent(epsilon: Fraction, prior: Fraction = EVEN) -> str:
    """What chance an observer can give one of two answers at most: "73.2 %". Rounded up, and never to certainty."""
    return percent_at_most(at_most_sure(epsilon, prior))


def sure(epsilon: Fraction, prior: Fraction = EVEN) -> str:
    """The same in words: "at most 73.2 % sure", and where no decimals suffice "as good as certain"."""
    chance = percent(epsilon, prior)
    return f"as good as certain: {chance}" if chance.startswith(_ENDLESS) else f"at most {chance} sure"


def from_to(epsilon: Fraction, prior: Fraction) -> tuple[str, str]:
    """A chance before, and the largest that it can become: "1 %", "2.7 %"."""
    return f"{at_most(100 * prior, 0)} %", percent(epsilon, prior)


def factor(epsilon: Fraction) -> str:
    """By how much the odds between two answers change at most, rounded up: "2.72 times", "5.2 · 10^21 times"."""
    upper = certified_exp(epsilon)[1]
    if upper >= _LARGE:
        power = len(str(int(upper))) - 1
        return f"{at_most(upper / 10**power, 1)} · 10^{power} times"
    return f"{at_most(upper, 2 if epsilon >= _FINE else 7)} times"


def dearest(task: Task) -> Loss:
    """The most that can be concluded: from everything a device ever sends for the task, under its dearest offer."""
    return next(losses(task))


def losses(task: Task) -> Iterator[Loss]:
    """What can be concluded, the most first: from all rounds and from one, and under each offer."""
    rounds = whole(task.rounds)
    for epsilon in reversed(task.offers or (task.epsilon,)):
        choice = f" (if it chose the offer of {decimal_text(epsilon)})" if task.offers else ""
        if task.rounds == 1:
            yield Loss(f"From your device's answer{choice}", epsilon)
        elif task.repeat == "sticky":
            changes = "They can also see in which rounds your answer changed, and no number bounds that."
            yield Loss(f"From all {rounds} rounds together", epsilon, changes)
            yield Loss("From all rounds together, if your answer never changes", epsilon / task.draws)
        else:
            yield Loss(f"From all {rounds} rounds together{choice}", epsilon)
            yield Loss(f"From one round{choice}", epsilon / task.draws)
