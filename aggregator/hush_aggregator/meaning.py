"""What a task means to the people who answer it and to those who ask. No numpy: `hush task check` is quick."""

import json
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from hush_common.domain import NumberDomain
from hush_common.epsilon import WEAK_ABOVE, decimal_text
from hush_common.mechanisms import Laplace
from hush_common.mechanisms.build import build
from hush_common.task import Task

__all__ = ["expected_error", "meaning", "posterior", "text", "warning"]

_CONFIDENCE = 0.95
_PEOPLE = (100, 1_000, 10_000)


def warning(task: Task) -> str | None:
    """A warning about a weak epsilon, or None."""
    if task.epsilon <= WEAK_ABOVE:
        return None
    return (
        f"warning: epsilon {decimal_text(task.epsilon)} is above {decimal_text(WEAK_ABOVE)}, so that an answer hides "
        f"little; a smaller epsilon and more people give the same error"
    )


def posterior(epsilon: Fraction) -> float:
    """What an observer who was 50/50 between two values can at most become sure of: e^epsilon / (1 + e^epsilon)."""
    return 1 / (1 + math.exp(-float(epsilon)))


def expected_error(task: Task, people: int) -> float:
    """Half-width at 95 % of the mean of `people` answers, from the noise alone, by the normal approximation.

    In the unit of the domain; for a bit, as a proportion (at the bit whose answers vary more).
    """
    mechanism = build(task)
    if isinstance(mechanism, Laplace):
        if not isinstance(task.domain, NumberDomain):
            raise TypeError("laplace without bounds")
        variance = mechanism.variance * float(task.domain.step) ** 2
    else:
        zero, one = mechanism.probability_of_one
        variance = float(max(p * (1 - p) for p in (zero, one)) / (one - zero) ** 2)
    return NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * math.sqrt(variance / people)


def meaning(task: Task) -> dict[str, Any]:
    """The facts for a program: the published fields, and what follows from them."""
    facts = json.loads(task.payload) | {
        "digest": task.digest.hex(),
        "epsilon_per_round": decimal_text(task.epsilon_per_round),
        "posterior": posterior(task.epsilon),
        "posterior_per_round": posterior(task.epsilon_per_round),
        "weak": task.epsilon > WEAK_ABOVE,
        "expected_error": {str(people): expected_error(task, people) for people in _PEOPLE},
        "expected_error_is": "95 %, one round, noise of the mechanism alone, normal approximation",
    }
    if isinstance(task.domain, NumberDomain):
        facts["grid_step"] = float(task.domain.step)
    return dict(facts)


def text(task: Task) -> str:
    """The facts for a person."""
    rows = [
        ("task", task.id),
        ("title", task.title),
        ("purpose", task.purpose),
        ("asks for", _question(task)),
        ("mechanism", task.mechanism),
        ("epsilon", _price(task)),
        ("an observer", _observer(task)),
        ("rounds", _rounds(task)),
        ("opens", "always open" if task.opens is None else task.opens.isoformat()),
        ("closes", "never" if task.closes is None else task.closes.isoformat()),
        ("digest", task.digest.hex()),
    ]
    lines = [f"{label:<12} {text}" for label, text in rows if text]
    lines += ["", "error to expect in the mean (95 %, one round; noise alone, normal approximation):"]
    lines += [f"{people:>12,} people  ± {_amount(task, expected_error(task, people))}" for people in _PEOPLE]
    return "\n".join(lines)


def _question(task: Task) -> str:
    if not isinstance(task.domain, NumberDomain):
        return "yes or no"
    domain = task.domain
    outside = "moved to the nearer bound" if domain.outside == "clamp" else "refused"
    return (
        f"a number from {domain.lower:g} to {domain.upper:g} {domain.unit}".rstrip() + f"; outside values are {outside}"
    )


def _price(task: Task) -> str:
    total = decimal_text(task.epsilon)
    if task.rounds == 1:
        return f"{total} (a device answers once)"
    return f"{total} for all {task.rounds} rounds together, {decimal_text(task.epsilon_per_round)} a round"


def _observer(task: Task) -> str:
    sure = f"who was 50/50 between two values becomes at most {_percent(posterior(task.epsilon))} sure"
    if task.rounds == 1:
        return sure
    return f"{sure} from all rounds, {_percent(posterior(task.epsilon_per_round))} from one"


def _percent(probability: float) -> str:
    """Rounded up, never to 100 %: a promise must not be better than the truth."""
    for places in range(1, 12):
        percent = math.ceil(probability * 100 * 10**places) / 10**places
        if percent < 100:  # noqa: PLR2004 - per cent
            return f"{percent:.{places}f} %"
    return "more than 99.99999999 %"


def _rounds(task: Task) -> str:
    if task.round_every is None or task.rounds == 1:
        return str(task.rounds)
    return f"{task.rounds}, one every {task.round_every}"


def _amount(task: Task, error: float) -> str:
    if isinstance(task.domain, NumberDomain):
        share = error / (task.domain.upper - task.domain.lower)
        return f"{error:.3g} {task.domain.unit}".rstrip() + f"  ({100 * share:.2g} % of the range)"
    return f"{100 * error:.2g} percentage points"
