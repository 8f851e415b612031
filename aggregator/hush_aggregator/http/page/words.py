"""Words: what stands on the page beside the numbers, in plain English."""

from collections.abc import Iterator
from datetime import UTC, datetime

from hush_aggregator.estimate.estimates import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.estimation import CRASHED, TOO_SLOW
from hush_aggregator.http.page.markup import Html, element, foreign, fragment, joined
from hush_aggregator.store.base import Origin
from hush_common.domain import BitDomain, CategoryDomain, NumberDomain, VectorDomain
from hush_common.formatting import duration, exact, whole
from hush_common.task import Task

__all__ = [
    "FAILURES",
    "ORIGINS",
    "about",
    "meaning",
    "moment",
    "people",
    "quantity",
    "question",
    "times",
]

_SHOWN = 6
_ANYTIME = "however often you look while reports arrive"

FAILURES = {
    NOT_FINITE: "the arithmetic did not end in a number",
    FAILED: "an error of hush; its log says where",
    CRASHED: "the process that made it ended: it was killed, or found no memory",
    TOO_SLOW: "it took too long",
}
"""Why something could not be made."""

ORIGINS = {
    Origin.FILE: "the people who run this service, in a file",
    Origin.COMMAND: "the people who run this service, by a command",
    Origin.HTTP: "somebody who may write to this service",
    Origin.BROKER: "somebody who may publish at the broker",
}
"""Who gave a task."""


def question(task: Task) -> Html:
    """What a device is asked."""
    match task.domain:
        case CategoryDomain(labels=labels):
            return fragment(f"Which of these {len(labels)} applies: ", _listed(labels), ".")
        case VectorDomain(coordinates=coordinates):
            names = [coordinate.name for coordinate in coordinates]
            return fragment(f"{len(names)} numbers: ", _listed(names), ".")
        case NumberDomain() as domain:
            return fragment(
                f"A number from {exact(domain.lower)} to {exact(domain.upper)}",
                fragment(" ", foreign(domain.unit)) if domain.unit else None,
                ". What lies outside is moved to the nearer bound.",
            )
        case _:
            return fragment("Yes or no.")


def quantity(task: Task) -> str:
    """What the estimate is of."""
    if isinstance(task.domain, BitDomain):
        return "Share of yes"
    return "Share" if isinstance(task.domain, CategoryDomain) else "Average"


def about(target: str, method: str = "") -> str:
    """Whom an interval is about: the rows of a table."""
    if target in (ANYTIME, ANYTIME_POPULATION):
        whom = POPULATION if target == ANYTIME_POPULATION or method.startswith(POPULATION) else REPORTERS
        return f"{about(whom)}, {_ANYTIME}"
    return {
        REPORTERS: "Those who answered",
        POPULATION: "Everybody they stand for",
        ENROLLED: "All who were asked",
    }.get(target, target)


def meaning(target: str) -> str:
    """What an interval takes into account."""
    return {
        REPORTERS: "Only the noise of their devices is uncertain.",
        POPULATION: "The noise, and who happened to answer. Holds if they are a random sample.",
        ENROLLED: "The noise, and who happened to answer. Holds if they are a random part of those asked.",
        ANYTIME: "Wider, so that it stays right although you watch.",
        ANYTIME_POPULATION: "Wider, so that it stays right although you watch. Holds if they are a random sample.",
    }.get(target, "")


def people(n: int) -> str:
    """So many reports."""
    return "1 report" if n == 1 else f"{whole(n)} reports"


def moment(time: datetime) -> Html:
    """A time, of the one zone that everybody can convert from."""
    utc = time.astimezone(UTC)
    return element("time", f"{utc:%d %b %Y, %H:%M} UTC", datetime=utc.isoformat(timespec="seconds"))


def times(task: Task, now: datetime) -> Iterator[Html]:
    """How often a device answers, and from when to when."""
    if task.rounds == 1 or task.round_every is None:
        yield fragment("A device answers once at most.")
    else:
        every = duration(task.round_every)
        often = "once a day" if every == "1 day" else f"once every {every}"
        yield fragment(f"A device answers up to {whole(task.rounds)} times, {often}.")
    if task.opens is not None:
        yield fragment("Opens " if now < task.opens else "Opened ", moment(task.opens), ".")
    if task.closes is None:
        yield fragment("No end is set.")
    else:
        yield fragment("Closes " if now < task.closes else "Closed ", moment(task.closes), ".")


def _listed(names: tuple[str, ...] | list[str]) -> Html:
    more = len(names) - _SHOWN
    shown = joined([foreign(name) for name in names[:_SHOWN]], ", ")
    return fragment(shown, f" and {more} more" if more > 0 else None)
