"""View: all that the page says of one task, frozen. It is read first and drawn then, so that what is drawn fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Interval,
    Intervals,
)
from hush_aggregator.http.page.numbers import Scale
from hush_aggregator.result import WHOLE, Result
from hush_aggregator.store.base import Origin, State
from hush_common.domain import BitDomain, CategoryDomain, NumberDomain
from hush_common.task import Task

__all__ = ["ORDER", "Point", "Standing", "View", "band_of", "primary"]

ORDER = (ANYTIME, ANYTIME_POPULATION, REPORTERS, POPULATION, ENROLLED)
"""Of intervals, as the page lists them."""


class Standing(Enum):
    """What becomes of a task: a word for it, and a sentence."""

    LIVE = "Live", "Devices are asked, and their reports are counted as they arrive."
    NOT_OPEN = "Not open yet", "Nobody is asked before it opens."
    CLOSING = "Closing", "Nobody is asked any more. Reports that are under way still count for some minutes."
    WITHDRAWN = "Withdrawn", "Nobody is asked any more. Reports that are under way still count."
    FINAL = "Final", "Nothing counts any more: these are the last figures."

    @property
    def word(self) -> str:
        return self.value[0]

    @property
    def sentence(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Point:
    """The estimate as it stood after so many reports.

    Args:
        n: reports counted.
        value: the estimate.
        band: the interval that may be watched.
    """

    n: int
    value: float
    band: Interval


@dataclass(frozen=True, slots=True)
class View:
    """A task, and what is known of it.

    Args:
        task: what is asked.
        state: what its owner wants to become of it.
        origin: who gave it.
        ended: whether nothing counts any more in any round.
        now: aware.
        result: of the round that is shown; None if it is still being made.
        n: reports counted of that round.
        rounds: the results of the last rounds, oldest first; empty where there is but one.
        latest: the latest round that has a report.
        history: how the estimate of that round came about, as far as this service has seen it.
    """

    task: Task
    state: State
    origin: Origin
    ended: bool
    now: datetime
    result: Result | None = None
    n: int = 0
    rounds: Sequence[Result] = field(default=())
    latest: int = 0
    history: Sequence[Point] = field(default=())

    @property
    def standing(self) -> Standing:
        """What becomes of it."""
        task = self.task
        if self.ended or self.state is State.CLOSED:
            return Standing.FINAL
        if self.state is State.WITHDRAWN:
            return Standing.WITHDRAWN
        if task.closes is not None and self.now >= task.closes:
            return Standing.CLOSING
        if task.opens is not None and self.now < task.opens:
            return Standing.NOT_OPEN
        return Standing.LIVE

    @property
    def round(self) -> int:
        return self.latest if self.result is None else self.result.round

    @property
    def failed(self) -> bool:
        """Whether there are reports, and no estimate could be made of them."""
        return self.result is not None and WHOLE in self.result.failures

    @property
    def scale(self) -> Scale:
        """How its figures are written, before their precision is known."""
        return Scale(self.task.unit, percent=isinstance(self.task.domain, BitDomain | CategoryDomain))

    @property
    def limits(self) -> Interval:
        """The least and the largest that an estimate can be, but for its noise; of a number or a bit."""
        domain = self.task.domain
        return (domain.lower, domain.upper) if isinstance(domain, NumberDomain) else (0.0, 1.0)

    @property
    def title(self) -> str:
        return self.task.title.strip() or self.task.id

    @property
    def address(self) -> str:
        """Of its own page; ids are letters, digits and hyphens."""
        return f"/tasks/{self.task.id}"


def band_of(target: str) -> str:
    """The class of the style sheet for an interval: pale if it may be watched, else darker."""
    return "anytime" if target in (ANYTIME, ANYTIME_POPULATION) else "population"


def primary(intervals: Intervals, methods: Mapping[str, str], *, final: bool) -> str | None:
    """Which interval to show first: while reports arrive the one that may be watched, then the one of the same target.

    Args:
        intervals: by target.
        methods: how they were made; that of an interval that may be watched begins with its target.
        final: whether nothing counts any more.
    """
    whom = POPULATION if methods.get(ANYTIME, "").startswith(POPULATION) else REPORTERS
    wanted = (whom, POPULATION, REPORTERS, ENROLLED, ANYTIME) if final else (ANYTIME, whom, *ORDER)
    return next((target for target in wanted if target in intervals), None)
