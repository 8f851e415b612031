"""Experiment and outcome: what a simulation is asked to do, and what it observes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hush_aggregator.result import Result
from hush_common.refusal import Refusal
from hush_common.task import Task
from hush_simulations.engines.reports import Received
from hush_simulations.scenarios.population import Value
from hush_simulations.scenarios.scenario import Scenario

__all__ = ["Engine", "Experiment", "Outcome", "RoundOutcome", "judged"]

Engine = Literal["mqtt", "memory"]
_DEFAULT_CONNECTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What to simulate.

    Args:
        scenario: the question; on a broker of others its task gets an id of its own.
        values: the true values, one device each. Never part of a representation: they may be somebody's data.
        choices: for each device the number of the epsilon that it takes of those offered, chosen without looking at
            its value; empty where the task offers one.
        engine: `"mqtt"` (real sockets) or `"memory"`.
        broker: `"embedded"`, `"mosquitto"`, or an address, which may hold a password; of no effect on the engine
            `"memory"`.
        connections: gateways that share the devices; None for as many as work best.
        confidence: coverage of the error bars, in (0, 1).
        noise_seed: makes the noise of all devices repeatable, and therefore not private; None takes it from the
            operating system.
        seed: what the population was drawn with; None if nothing depends on one.

    Attributes:
        task: the task of the scenario.

    Raises:
        TaskError: the question is no legal task.
    """

    scenario: Scenario
    values: Sequence[Value] = field(repr=False)
    choices: Sequence[int] = field(default=(), repr=False)
    engine: Engine = "mqtt"
    broker: str = field(default="embedded", repr=False)
    connections: int | None = None
    confidence: float = 0.95
    noise_seed: int | None = None
    seed: int | None = None
    task: Task = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", self.scenario.task())

    @property
    def gateways(self) -> int:
        """How many gateways there are: never more than devices."""
        return max(1, min(self.connections or _DEFAULT_CONNECTIONS, len(self.values)))


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What came of one round.

    Args:
        result: of the aggregator.
        reporters: positions, in `Experiment.values`, of the devices that sent a report.
        clamped: how many of them had to move their value into the domain.
        declined: devices that sent nothing, by their reason.
        elapsed: seconds from the first answer to the last commit.
        received: what the aggregator counted.
    """

    result: Result
    reporters: tuple[int, ...] = field(repr=False)
    clamped: int
    declined: Mapping[str, int]
    elapsed: float
    received: Received = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulation: the task as it was published, its rounds, and whether it was stopped before all had answered."""

    task: Task
    rounds: tuple[RoundOutcome, ...]
    stopped: bool = False


def judged(accepted: int, refused: Mapping[str, int] | Mapping[Refusal, int]) -> int:
    """How many different reports were accepted or refused.

    A redelivery is refused as a duplicate, but it is no further report: counted in, it would hide one that was lost.
    """
    return accepted + sum(count for reason, count in refused.items() if reason != Refusal.DUPLICATE)
