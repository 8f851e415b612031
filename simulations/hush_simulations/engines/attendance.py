"""Attendance: which devices answer in a round of the engines that have devices, and what came of it."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_simulations.engines.experiment import Experiment
from hush_simulations.scenarios.panel import as_numbers

__all__ = ["Answers", "Attendance"]

_REFUSING, _SHOCKS, _DROPPING = 2, 3, 4  # streams of a seed; 1 chooses epsilons


@dataclass(slots=True)
class Answers:
    """Those of a round: who sent a report, how many values were moved into the domain, and why others sent nothing."""

    reporters: "array[int]" = field(default_factory=lambda: array("q"))
    clamped: int = 0
    declined: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who of those who tell the truth answers, as a panel says. Liars are always there.

    Args:
        refusing: devices that never answer, shape (devices,).
        present: how likely each device is there in each round, shape (rounds, devices); None where all are.
        seed: of the draws of each round.
    """

    refusing: NDArray[np.bool_]
    present: NDArray[np.float64] | None
    seed: int = field(repr=False)

    @classmethod
    def of(cls, experiment: Experiment, truthful: int) -> Self:
        """That of the first so many devices."""
        scenario, domain, seed = experiment.scenario, experiment.task.domain, experiment.seed or 0
        panel, names = scenario.panel, scenario.groups
        groups = np.array(experiment.groups[:truthful] if names else [0] * truthful, dtype=np.int64)
        refusing = np.zeros(truthful, dtype=bool)
        if panel.nonresponse:
            numbers = as_numbers(domain, experiment.values[:truthful])
            chances = panel.refusing(domain, numbers, groups, names)
            refusing = np.random.default_rng([seed, _REFUSING]).random(truthful) < chances
        present = None
        if panel.dropout.share:
            shocks = np.random.default_rng([seed, _SHOCKS])
            present = panel.dropout.present(experiment.task.rounds, 1, max(len(names), 1), shocks)[:, 0, groups]
        return cls(refusing, present, seed)

    def away(self, round_: int) -> frozenset[int]:
        """The devices that are not there."""
        missing = self.refusing
        if self.present is not None:
            draws = np.random.default_rng([self.seed, _DROPPING, round_]).random(len(missing))
            missing = missing | (draws >= self.present[round_])
        return frozenset(np.nonzero(missing)[0].tolist())
