# ruff: noqa: ANN401 - what is passed for a mechanism and its domain is of the kind that the module is for
"""What an aggregator does with the reports of one mechanism: the contract of the other modules in this package."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.finite_channel import Assumed
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import Domain


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What an estimate is about."""

    domain: Domain
    confidence: float
    enrolled: int | None

    def enrolled_of(self, parts: Sequence[tuple[Any, Tally]]) -> int | None:
        """How many devices were asked, of which those that reported can be a random subset."""
        n = sum(tally.n for _, tally in parts)
        return self.enrolled if self.enrolled is not None and n <= self.enrolled else None


class Analysis(Protocol):
    """A module of this package. Wherever a mechanism is asked for, it is of the module's own kind."""

    def columns(self, mechanism: Any, /) -> int:
        """How many sums a tally has."""
        ...

    def fold(self, mechanism: Any, bodies: NDArray[np.int64], /) -> tuple[int, ...]:
        """The sums of at least one admitted body, shape (count, width)."""
        ...

    def possible(self, mechanism: Any, tally: Tally, /) -> bool:
        """Whether a tally of reports of this mechanism can have this number of sums."""
        ...

    def estimate(self, parts: Sequence[tuple[Any, Tally]], request: EstimateRequest, /) -> Estimate:
        """The estimate, from the mechanism and tally of each epsilon; at least one has a report."""
        ...

    def said(self, mechanism: Any, domain: Any, bodies: NDArray[np.int64], place: int, /) -> NDArray[np.float64]:
        """What the reports that speak of one part of the value say of it, noisy as they are.

        A number or a bit has one part: each report as an unbiased estimate of it, in the unit of the domain, never
        clipped. Of a category: 1 if it is named, else 0. Of a coordinate: its level, from 0 to 1.
        """
        ...

    def spread(
        self, mechanism: Any, domain: Any, tally: Tally, place: int, /
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
        """How many reports say what of one part of the value, where the tally of at least one report tells.

        Returns:
            What can be said, as by `said`, and how many reports say it; None where a tally has sums alone.
        """
        ...

    def in_words(self, mechanism: Any, domain: Any, bodies: NDArray[np.int64], /) -> list[str]:
        """What each report says: labels that it names, coordinates that it drew and their values, or a number."""
        ...


@runtime_checkable
class BatchAnalysis(Protocol):
    """A module that estimates many tallies of one task in less time than one after the other."""

    def estimate_many(
        self, samples: Sequence[Sequence[tuple[Any, Tally]]], request: EstimateRequest, /
    ) -> list[Estimate]:
        """The same estimates as `Analysis.estimate`, but for the rounding of sums."""
        ...


@runtime_checkable
class PlannedAnalysis(Protocol):
    """A module whose estimate is not a share: a plan needs a tally of it. The law of a share is that of its count."""

    def worst(self, mechanism: Any, people: int, assumed: Assumed, /) -> tuple[float, tuple[int, ...]]:
        """A tally whose intervals are long, as a plan needs it: see `hush_aggregator.estimate.finite_channel`.

        Args:
            mechanism: for values in [0, 1].
            people: how many report.
            assumed: of their values: who has which, their mean alone, or nothing: then the worst.

        Returns:
            The mean of the values, and the sums of the reports.
        """
        ...
