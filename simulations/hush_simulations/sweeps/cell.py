"""A cell of a sweep: what a worker needs to make it, and what it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

import numpy as np

from hush_simulations.engines.experiment import Drawing
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.sweeps.result import Parameter, SweepRow


@dataclass(frozen=True, slots=True)
class CellWork:
    """One cell, with all that a worker needs. Its key is a digest of all that its results depend on."""

    number: int
    key: str
    parameters: Mapping[str, Parameter]
    scenario: Scenario = field(repr=False)
    trials: int
    seed: int
    confidence: float
    drawing: Drawing

    @property
    def place(self) -> int:
        """The number of the cell in its seeds: from its key, not its place in the grid."""
        return int(self.key[:16], 16)


@dataclass(frozen=True, slots=True)
class CellVersions:
    """The versions that made a cell."""

    hush: str
    numpy: str


@cache
def versions_here() -> CellVersions:
    """Return the versions of this process."""
    return CellVersions(hush=version("hush-ldp"), numpy=np.__version__)


@dataclass(frozen=True, slots=True)
class FinishedCell:
    """A finished cell, with the key of its inputs."""

    key: str
    seed: int
    versions: CellVersions
    rows: tuple[SweepRow, ...]
