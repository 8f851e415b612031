"""A finished simulation, for a program that goes on with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hush_simulations.display.figure import figure_of
from hush_simulations.engines.experiment import Experiment, Outcome
from hush_simulations.results.result import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run"]


@dataclass(frozen=True, repr=False)
class Run:
    """A finished simulation. Its representation shows no value, no report and no address.

    Args:
        experiment: what was run.
        outcome: what came of it.
        seed: of the population; None if nothing depends on one.
    """

    experiment: Experiment
    outcome: Outcome
    seed: int | None

    def __repr__(self) -> str:
        count = sum(len(done.reporters) for done in self.outcome.rounds)
        return f"<hush.Run of {self.outcome.task.id!r}: {count} reports in {len(self.outcome.rounds)} rounds>"

    @property
    def result(self) -> Mapping[str, Any]:
        """What the aggregator published, of several rounds in the last."""
        return self.results[-1]

    @property
    def results(self) -> tuple[Mapping[str, Any], ...]:
        """What the aggregator published in each round."""
        return tuple(done.result for done in self.outcome.rounds)

    @property
    def truth(self) -> Mapping[str, Any]:
        """What the error bars of `result` are about, which only a simulation knows."""
        truth: Mapping[str, Any] = self._document["truth"]
        return truth

    @property
    def covered(self) -> Mapping[str, Any]:
        """Whether each error bar of `result` holds its truth."""
        covered: Mapping[str, Any] = self._document["covered"]
        return covered

    def figure(self) -> "Figure":
        """The picture that `hush simulate --out` keeps: `run.figure().savefig("heights.png")`."""
        return figure_of(self._document, self.experiment, self.outcome)

    def to_document(self) -> dict[str, Any]:
        """The object that `hush simulate --json` prints."""
        return dict(self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(self.experiment, self.outcome, self.seed)
