"""A sweep before it runs: its scenario, its grid, and the work of each cell with the key that names it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hush_common.errors import HushError, OptionError
from hush_simulations.engines.experiment import Drawing
from hush_simulations.engines.limits import CLIENTS as CLIENTS_LIMITS
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.population import Observed
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.scenario_file import scenario_of_document
from hush_simulations.sweeps.grid import CLIENTS, SCENARIO, Grid, canonical, placed
from hush_simulations.sweeps.row import Parameter

__all__ = ["FORMAT", "Base", "CellWork", "Sweep"]

FORMAT = 1
"""Of the files of a sweep, and of what a seed means in them."""

_OPENS = datetime(2026, 1, 1, tzinfo=UTC)  # of tasks of several rounds: the clock is no part of a result


@dataclass(frozen=True, slots=True)
class Base:
    """The scenario that is varied.

    Args:
        name: as it was asked for.
        document: as its file says it.
        path: of the file, for messages, and for tables that it names.
    """

    name: str
    document: Mapping[str, object] = field(repr=False)
    path: Path


@dataclass(frozen=True, slots=True)
class CellWork:
    """One cell, with all that it takes to make it anywhere.

    Args:
        number: in the grid.
        key: digest of everything that its figures follow from.
        parameters: where it lies.
        scenario: what is simulated.
        trials: how many times.
        seed: of the sweep.
        confidence: of the intervals.
        drawing: what the bulk engine draws.
    """

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
        """What stands for the cell in the seeds of its pieces: a matter of its key, and not of its number."""
        return int(self.key[:16], 16)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is asked for.

    Args:
        bases: the scenario, or each of those that an axis of the grid names.
        grid: what is varied.
        trials: of each cell.
        seed: of people and noise.
        confidence: of the intervals.
        drawing: what the bulk engine draws in each trial.
    """

    bases: Sequence[Base]
    grid: Grid
    trials: int
    seed: int
    confidence: float
    drawing: Drawing = "auto"

    def identity(self) -> dict[str, object]:
        """What makes it this sweep and no other, by the names that a message uses."""
        return {
            "scenario": [dict(base.document) for base in self.bases],
            **{f"grid.{axis.name}": list(axis.values) for axis in self.grid.axes},
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "draw": self.drawing,
        }

    def works(self) -> list[CellWork]:
        """Every cell, in the order of the grid.

        Raises:
            OptionError: a value that a scenario cannot have; it is named with its cell.
        """
        named = {base.name: base for base in self.bases}
        read: dict[str, Scenario] = {}
        found = []
        for number, point in enumerate(self.grid.points()):
            base = named[str(point[SCENARIO])] if SCENARIO in point else self.bases[0]
            document = placed(base.document, point)
            parameters = self.grid.shown(point)
            try:
                scenario = _scenario(document, base, point, read)
            except HushError as error:
                where = ", ".join(f"{name} = {value}"[:60] for name, value in parameters.items())
                raise OptionError("grid", f"no scenario has {where}: {error}") from error
            found.append(self._work(number, parameters, scenario, document))
        return found

    def _work(
        self, number: int, parameters: Mapping[str, Parameter], scenario: Scenario, document: Mapping[str, object]
    ) -> CellWork:
        follows = {
            "format": FORMAT,
            "scenario": document,
            "clients": scenario.clients,
            "values": _digest(scenario),
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "draw": self.drawing,
        }
        key = hashlib.sha256(canonical(follows).encode()).hexdigest()
        return CellWork(number, key, parameters, scenario, self.trials, self.seed, self.confidence, self.drawing)


def _scenario(
    document: Mapping[str, object], base: Base, point: Mapping[str, object], read: dict[str, Scenario]
) -> Scenario:
    """The scenario of a cell; somebody's table is read once, and not for every epsilon."""
    clients = next((point[name] for name in CLIENTS if name in point), None)
    if clients is not None:
        if isinstance(clients, bool) or not isinstance(clients, int):
            raise OptionError("clients", f"{str(clients)[:40]!r} is not a whole number; write how many devices report")
        CLIENTS_LIMITS.check(clients, "clients", "write how many devices report")
    people = document.get("population")
    if isinstance(people, Mapping) and people.get("kind") in {"csv", "parquet"}:
        task = document.get("task")
        key = canonical([base.name, people, task.get("domain") if isinstance(task, Mapping) else None])
        if key not in read:
            read[key] = scenario_of_document(document, base.path)
        found = scenario_of_document(document, base.path, read[key].population)
    else:
        found = scenario_of_document(document, base.path)
    if found.rounds > 1:
        found = found.repeated(found.rounds, _OPENS)
    found.task()
    return found if clients is None else found.of_size(clients)


def _digest(scenario: Scenario) -> str | None:
    """Of somebody's values: the same ones give the same cell."""
    people = scenario.population
    every = [group.people for group in people.groups] if isinstance(people, Grouped) else [people]
    rows = [one.values for one in every if isinstance(one, Observed)]
    return hashlib.sha256(repr(rows if isinstance(people, Grouped) else rows[0]).encode()).hexdigest() if rows else None
