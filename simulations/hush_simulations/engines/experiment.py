"""Experiment and outcome: what a simulation is asked to do, and what it observes."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hush_aggregator.result import Result
from hush_aggregator.tally import Tally
from hush_common.task import Task
from hush_common.wire import Refusal
from hush_simulations.engines.reports import Received
from hush_simulations.scenarios.population import Value
from hush_simulations.scenarios.scenario import Scenario

__all__ = ["ABSENT", "Drawing", "Engine", "Experiment", "Outcome", "RoundOutcome", "bulk_experiment", "judged"]

Engine = Literal["mqtt", "memory", "bulk"]
Drawing = Literal["auto", "tally", "devices"]
"""What the bulk engine draws: the tally of a round at once, or the report of every device."""

ABSENT = "absent"
"""Why a device sends nothing that dropped out, or never answers."""

_DEFAULT_CONNECTIONS: dict[Engine, int] = {"mqtt": 20, "memory": 2, "bulk": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What to simulate.

    Args:
        scenario: the question; on a broker of others its task gets an id of its own.
        values: the true values, one device each; empty on the engine `"bulk"`, which draws them itself. Never part of a
            representation: they may be somebody's data.
        groups: for each device the number of its group; empty where the population has none.
        choices: for each device the number of the epsilon that it takes of those offered, chosen without looking at
            its value; empty where the task offers one.
        engine: `"mqtt"` (real sockets), `"memory"`, or `"bulk"` (neither devices nor a broker: the same law alone).
        broker: `"embedded"`, `"mosquitto"`, or an address, which may hold a password; of no effect on the engine
            `"memory"`.
        connections: gateways that share the devices; None for as many as work best.
        confidence: coverage of the error bars, in (0, 1).
        noise_seed: makes the noise of all devices repeatable, and therefore not private; None takes it from the
            operating system.
        seed: what the population was drawn with, in bulk the noise too; None if nothing depends on one.
        drawing: in bulk, what is drawn.
        workers: in bulk, how many threads draw; nothing else depends on it.
        dask: in bulk, the address of the scheduler of a cluster that draws instead; nor on that.

    Attributes:
        task: the task of the scenario.

    Raises:
        TaskError: the question is no legal task.
        OptionError: people behave in a way that does not fit it.
    """

    scenario: Scenario
    values: Sequence[Value] = field(repr=False)
    choices: Sequence[int] = field(default=(), repr=False)
    groups: Sequence[int] = field(default=(), repr=False)
    engine: Engine = "mqtt"
    broker: str = field(default="embedded", repr=False)
    connections: int | None = None
    confidence: float = 0.95
    noise_seed: int | None = None
    seed: int | None = None
    drawing: Drawing = "auto"
    workers: int = 1
    dask: str | None = None
    task: Task = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", self.scenario.task())
        self.scenario.panel.check(self.task.domain, self.task.rounds, self.scenario.groups)

    @property
    def clients(self) -> int:
        """How many devices there are."""
        return self.scenario.clients if self.engine == "bulk" else len(self.values)

    def value(self, device: int, round_: int) -> Value:
        """The true value of a device in a round; of the engines with devices."""
        return self.scenario.panel.value(self.task.domain, self.values[device], round_)

    def mean(self, round_: int) -> float | tuple[float, ...] | None:
        """The mean of the population in a round; None where only a sample is known."""
        return self.scenario.panel.mean(self.task.domain, self.scenario.population.mean, round_)

    @property
    def gateways(self) -> int:
        """How many gateways there are: never more than devices."""
        wanted = self.connections or self.scenario.gateways or _DEFAULT_CONNECTIONS[self.engine]
        return max(1, min(wanted, len(self.values)))


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What came of one round.

    Args:
        result: of the aggregator.
        reporters: positions, in `Experiment.values` where it has any, of the devices that sent a report.
        clamped: how many of them had to move their value into the domain.
        declined: devices that sent nothing, by their reason.
        elapsed: seconds from the first answer to the last commit.
        received: what the aggregator counted; empty in bulk, where no report is kept.
        truth: in bulk, the mean of the values, of each coordinate, or the share of each label; None where nobody has
            one. Else None: it is made of the values.
        known: in bulk, of how many values each is the mean.
        groups: in bulk, of each group how many devices answered, and their truth; empty where there are none.
        tally: in bulk, that of the round.
        chosen: in bulk, how many devices took each epsilon offered; empty where there is one.
    """

    result: Result
    reporters: Sequence[int] = field(repr=False)
    clamped: int
    declined: Mapping[str, int]
    elapsed: float
    received: Received = field(repr=False)
    truth: tuple[float | None, ...] | None = None
    known: tuple[int, ...] = ()
    groups: "tuple[tuple[int, tuple[float | None, ...]], ...]" = ()
    tally: Tally | None = None
    chosen: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulation: the task as published, its rounds, whether it was stopped early, and in bulk what was drawn."""

    task: Task
    rounds: tuple[RoundOutcome, ...]
    stopped: bool = False
    drawing: Drawing | None = None


def bulk_experiment(
    scenario: Scenario,
    shares: tuple[float, ...],
    seed: int | None,
    *,
    confidence: float,
    drawing: Drawing = "auto",
    workers: int = 1,
    dask: str | None = None,
) -> Experiment:
    """An experiment of the bulk engine, which draws the people itself.

    Args:
        scenario: the question, and how many it is put to.
        shares: of the devices that take each epsilon offered; empty for those of the scenario.
        seed: of people and noise; None for a fresh one, short enough to be typed again.
        confidence: coverage of the error bars.
        drawing: what is drawn.
        workers: how many draw at a time.
        dask: the scheduler of a cluster that draws.

    Raises:
        TaskError: the question is no legal task.
    """
    return Experiment(
        scenario=replace(scenario, shares=shares or scenario.shares),
        values=(),
        engine="bulk",
        confidence=confidence,
        seed=secrets.randbelow(1 << 32) if seed is None else seed,
        drawing=drawing,
        workers=workers,
        dask=dask,
    )


def judged(accepted: int, refused: Mapping[str, int] | Mapping[Refusal, int]) -> int:
    """How many different reports were accepted or refused.

    A redelivery is refused as a duplicate, but it is no further report: counted in, it would hide one that was lost.
    """
    return accepted + sum(count for reason, count in refused.items() if reason != Refusal.DUPLICATE)
