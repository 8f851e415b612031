"""Scenarios: a task together with the population that answers it. Some come with hush; a TOML file makes another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hush_common.task import Task
from hush_common.task_file import make_task
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Normal,
    Observed,
    Population,
)

__all__ = ["SCENARIOS", "Scenario", "scenario_of_column", "scenario_of_labels"]


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


def _one(mean: float, sd: float) -> Mixture:
    return Mixture((Normal(1.0, mean, sd),))


_COMMUTERS = {
    "car": 0.42,
    "bus": 0.12,
    "tram or underground": 0.11,
    "train": 0.08,
    "bicycle": 0.13,
    "on foot": 0.06,
    "works at home": 0.07,
    "otherwise": 0.01,
}

SCENARIOS = {
    "heights": Scenario(
        document={
            "id": "heights",
            "title": "Mean height of adults",
            "purpose": "Sizing of workplaces",
            "epsilon": "1",
            "mechanism": "laplace",
            "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"},
        },
        # Half women, half men.
        population=Mixture((Normal(0.5, 178.0, 7.0), Normal(0.5, 162.0, 6.5))),
    ),
    "survey": Scenario(
        document={
            "id": "survey",
            "title": "Did you work while ill last year?",
            "purpose": "Health at work",
            "epsilon": "1",
            "mechanism": "randomized_response",
            "domain": {"kind": "bit"},
        },
        population=Bernoulli(0.3),
    ),
    "commute": Scenario(
        document={
            "id": "commute",
            "title": "How do you get to work?",
            "purpose": "Bicycle stands and bus stops",
            "epsilon": "2",
            "mechanism": "subset_selection",
            "domain": {"kind": "category", "labels": list(_COMMUTERS)},
        },
        population=Frequencies(tuple(_COMMUTERS), tuple(_COMMUTERS.values())),
        clients=2000,
    ),
    "offices": Scenario(
        document={
            "id": "offices",
            "title": "Climate of offices",
            "purpose": "Heating and ventilation",
            "epsilon": "2",
            "mechanism": "vector",
            "domain": {
                "kind": "vector",
                "coordinates": [
                    {"name": "temperature", "lower": 10.0, "upper": 35.0, "unit": "°C"},
                    {"name": "humidity", "lower": 0.0, "upper": 100.0, "unit": "%"},
                    {"name": "carbon dioxide", "lower": 300.0, "upper": 3000.0, "unit": "ppm"},
                    {"name": "noise", "lower": 20.0, "upper": 100.0, "unit": "dB"},
                ],
            },
        },
        population=Independent((_one(22.0, 1.8), _one(42.0, 9.0), _one(850.0, 250.0), _one(48.0, 7.0))),
        clients=2000,
    ),
    "sleep": Scenario(
        document={
            "id": "sleep",
            "title": "Hours of sleep last night",
            "purpose": "Shift planning",
            "epsilon": "2",
            "offers": ["0.5", "1", "2"],  # each person chooses
            "mechanism": "laplace",
            "domain": {"kind": "number", "lower": 0.0, "upper": 14.0, "unit": "h"},
        },
        population=_one(7.1, 1.2),
        clients=1000,
    ),
}


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
