"""The privacy label: what a task does to the privacy of a person who answers. templates/label.html shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hush_aggregator.publish.explain import (
    EVEN,
    PrivacyLoss,
    factor,
    from_to,
    how_often,
    privacy_losses,
    release_rule,
    retention_rule,
)
from hush_aggregator.store.base import Origin
from hush_aggregator.web.page.numbers import shown_exact
from hush_aggregator.web.page.view import TaskView
from hush_common.domain import CategoryDomain, NumberDomain, VectorDomain
from hush_common.task import Task

_SHOWN = 6
_PRIORS = (Fraction(1, 100), EVEN, Fraction(9, 10))
_ORIGINS = {
    Origin.FILE: "the people who run this service, in a file",
    Origin.COMMAND: "the people who run this service, by a command",
    Origin.HTTP: "somebody who may write to this service",
    Origin.BROKER: "somebody who may publish on the broker",
}


@dataclass(frozen=True, slots=True)
class PrivacyLabel:
    """The label of a task. The author of the task wrote the names in its question: labels, coordinates, or a unit."""

    question: str
    names: Sequence[str]
    end: str
    leaves: str  # what a report contains
    every: str
    released: str  # when figures are published; empty without a rule
    stored: str  # how long reports are stored; empty without a rule
    origin: str
    losses: Sequence[PrivacyLoss]
    bound: float
    chances: Sequence[tuple[str, str]]
    factor: str

    @classmethod
    def of(cls, view: TaskView) -> "PrivacyLabel":
        """Make the label of a task."""
        found = list(privacy_losses(view.task))
        epsilon = found[0].epsilon
        return cls(
            *_question(view.task),
            every=_every(view.task),
            released=release_rule(view.task),
            stored=retention_rule(view.task),
            origin=_ORIGINS[view.origin],
            losses=found,
            bound=float(found[0].bound),
            chances=[from_to(epsilon, prior) for prior in _PRIORS],
            factor=factor(epsilon),
        )


def _question(task: Task) -> tuple[str, Sequence[str], str, str]:
    """Return the question up to the names in it, these, its end, and what a report contains."""
    match task.domain:
        case CategoryDomain(labels=labels):
            leaves = "random labels, yours more likely than the others"
            return f"Which of these {len(labels)} applies: ", labels[:_SHOWN], _more(labels), leaves
        case VectorDomain(coordinates=coordinates):
            names = [coordinate.name for coordinate in coordinates]
            leaves = "one of your numbers, picked at random and made noisy"
            return f"{len(names)} numbers: ", names[:_SHOWN], _more(names), leaves
        case NumberDomain() as domain:
            question = f"A number from {shown_exact(domain.lower)} to {shown_exact(domain.upper)}"
            names, space = ([domain.unit], " ") if domain.unit else ([], "")
            leaves = "a noisy number, made from yours and from chance"
            return question + space, names, ". A value outside is moved to the nearer bound.", leaves
        case _:
            return "Yes or no.", (), "", "a random yes or no, more often your answer than the other"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _SHOWN} more." if len(names) > _SHOWN else "."


def _every(task: Task) -> str:
    if task.rounds == 1 or task.round_every is None:
        return ""
    return how_often(task.round_every)
