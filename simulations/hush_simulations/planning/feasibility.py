"""Can this be learned from these people, how precisely, at which epsilon? By the exact law of the tally."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hush_common.domain import Domain
from hush_common.epsilon import at_most_sure, decimal_text, float_at_most
from hush_common.mechanisms.registry import choose
from hush_simulations.planning.plan import (
    TARGETS,
    OwnValues,
    central,
    error_of,
    offered,
    people_for,
    range_of,
)
from hush_simulations.shown import Shown

EPSILONS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Those that are compared if nobody names others."""

GOAL = 0.01
"""The error, as a share of the range, for which people are counted if nobody names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibleLine:
    """What is possible at one epsilon."""

    epsilon: Fraction  #: of one report
    observer: Fraction  #: how sure somebody becomes at most about a person who was at 50/50 before, rounded up
    mechanism: str  #: the one that `auto` takes
    half_widths: Mapping[str, float]  #: of the interval, by target, in the unit of the value; empty without people
    trusted: Mapping[str, float]  #: the same of a collector who sees all values and adds noise to their mean
    people: Mapping[str, int]  #: by target, how many reach the goal; absent where nobody's number does


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Feasibility(Shown):
    """What a number of people can tell at several epsilons. It shows no value of theirs."""

    domain: Domain  #: of the value
    people: int | None  #: who answer; None if only the number that reaches the goal is asked for
    confidence: float  #: of the intervals
    goal: float  #: the error to reach, in the unit of the value
    lines: tuple[FeasibleLine, ...]  #: one for each epsilon, ascending
    data: OwnValues | None = field(default=None, repr=False)  #: whose variance counts; None: the worst there is

    def columns(self) -> dict[str, list[object]]:
        """Return the lines as columns; errors are half-widths of intervals, in the unit of the value."""
        found: dict[str, list[object]] = {
            "epsilon": [float(line.epsilon) for line in self.lines],
            "observer_at_most_sure": [float_at_most(line.observer) for line in self.lines],
            "mechanism": [line.mechanism for line in self.lines],
        }
        for target in TARGETS:
            found[f"error_{target}"] = [line.half_widths.get(target) for line in self.lines]
            found[f"error_{target}_trusted"] = [line.trusted.get(target) for line in self.lines]
            found[f"people_{target}"] = [line.people.get(target) for line in self.lines]
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `hush feasible --json` prints."""
        document: dict[str, Any] = {"kind": self.domain.kind, "confidence": self.confidence, "goal": self.goal}
        if self.people is not None:
            document["people"] = self.people
        if self.data is not None:
            document["data"] = self.data.to_document()
        return document | {
            "lines": [
                {
                    "epsilon": decimal_text(line.epsilon),
                    "observer_at_most_sure": float_at_most(line.observer),
                    "mechanism": line.mechanism,
                    **({"half_width": dict(line.half_widths)} if line.half_widths else {}),
                    **({"trusted_collector": dict(line.trusted)} if line.trusted else {}),
                    "people_for_goal": dict(line.people),
                }
                for line in self.lines
            ]
        }

    @property
    def room(self) -> float:
        """What the bounds leave of the goal, in the unit of the value: not positive if they alone miss it."""
        return self.goal if self.data is None else self.goal - self.data.bias

    def reaching(self, target: str) -> FeasibleLine | None:
        """Return the line of the smallest epsilon at which these people reach the goal."""
        return next((line for line in self.lines if line.half_widths.get(target, float("inf")) <= self.room), None)

    def in_short(self) -> str:
        return f"Feasibility at {len(self.lines)} epsilons"


def feasibility(
    domain: Domain,
    *,
    people: int | None,
    epsilons: Sequence[Fraction] = EPSILONS,
    goal: float = GOAL,
    confidence: float = 0.95,
    data: OwnValues | None = None,
) -> Feasibility:
    """Return what is possible at each epsilon: intervals as `hush.plan` computes them, and people for the goal.

    Args:
        domain: of the value.
        people: who answer; None to ask only how many are needed.
        epsilons: of one report.
        goal: the error to reach, as a share of the range.
        confidence: of the intervals.
        data: known values, whose variance counts instead of the largest possible one.
    """
    known, scale = () if data is None else data.known, range_of(domain)
    families, trust = offered(domain, known), central(domain, known)
    room = goal if data is None else goal - data.bias / scale

    def line(epsilon: Fraction) -> FeasibleLine:
        name = choose(domain, [epsilon])[0]
        cost, trusted = families[name](epsilon), trust(epsilon)
        if cost is None or trusted is None:
            raise TypeError(f"{name} was chosen for an epsilon that it does not serve")
        needed = {target: people_for(cost, target, room, confidence) for target in TARGETS} if room > 0 else {}

        def widths(of: Any) -> dict[str, float]:  # noqa: ANN401 - either cost
            if people is None:
                return {}
            return {target: error_of(of, target, people, confidence) * scale for target in TARGETS}

        return FeasibleLine(
            epsilon=epsilon,
            observer=at_most_sure(epsilon),
            mechanism=name,
            half_widths=widths(cost),
            trusted=widths(trusted),
            people={target: count for target, count in needed.items() if count is not None},
        )

    return Feasibility(
        domain=domain,
        people=people,
        confidence=confidence,
        goal=goal * scale,
        lines=tuple(line(epsilon) for epsilon in sorted(set(epsilons))),
        data=data,
    )
