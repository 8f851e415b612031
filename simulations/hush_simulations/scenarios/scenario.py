"""Scenarios: a task together with the population that answers it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hush_common.task import Task
from hush_common.task_file import make_task
from hush_simulations.scenarios.population import Observed, Population

__all__ = ["Scenario", "scenario_of_column", "scenario_of_labels"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question and the people it is put to.

    Args:
        document: the task, as in a task file.
        population: where the true values come from.
        clients: how many devices answer, unless an option says otherwise.
        shares: where the task offers several epsilons, how large a share of the devices takes each, as they ascend,
            whatever these add up to; empty for equal shares.
    """

    document: Mapping[str, object]
    population: Population
    clients: int = 500
    shares: tuple[float, ...] = ()

    def asking(self, **changes: object) -> "Scenario":
        """The same question with other fields of the task; a change to None leaves the field as it is.

        Another epsilon is the only one: what the task offered besides is dropped.
        """
        kept = {k: v for k, v in self.document.items() if k != "offers" or changes.get("epsilon") is None}
        return replace(self, document={**kept, **{k: v for k, v in changes.items() if v is not None}})

    def repeated(self, rounds: int, opens: datetime) -> "Scenario":
        """The same question asked `rounds` times, a day apart; epsilon stays the total of all rounds."""
        return self.asking(rounds=rounds, round_every="1d", opens=opens.isoformat())

    def task(self) -> Task:
        """The validated task.

        Raises:
            TaskError: naming the field and the remedy.
        """
        return make_task(self.document)


def scenario_of_column(data: Observed, lower: float, upper: float, unit: str) -> Scenario:
    """A scenario about somebody's own numbers: one client a row, with bounds that the person states."""
    domain = {"kind": "number", "lower": lower, "upper": upper, "unit": unit}
    return _own(data, f"Mean of {data.name[:80]}", "laplace", domain)


def scenario_of_labels(data: Observed, labels: tuple[str, ...]) -> Scenario:
    """A scenario about somebody's own categories: one client a row, with labels that the person states."""
    return _own(data, f"Shares of {data.name[:80]}", "subset_selection", {"kind": "category", "labels": list(labels)})


def _own(data: Observed, title: str, mechanism: str, domain: Mapping[str, object]) -> Scenario:
    return Scenario(
        document={
            "id": "own-data",
            "title": title if title.isprintable() else "A column",
            "epsilon": "1",
            "mechanism": mechanism,
            "domain": domain,
        },
        population=data,
        clients=len(data.values),
    )
