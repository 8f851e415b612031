"""Experiment and outcome: what a simulation is asked to do, within which ranges, and what it observes."""

import secrets
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.result import Result
from hush_aggregator.store import StoreReader
from hush_aggregator.tally import Tally
from hush_common.domain import BitDomain, NumberDomain
from hush_common.errors import OptionError
from hush_common.formatting import significant
from hush_common.mechanisms import Mechanism, Offers
from hush_common.rng import REPORT_ID_BYTES
from hush_common.task import Task
from hush_common.wire import Refusal
from hush_simulations.scenarios.population import MOST_CLIENTS, MOST_DEVICES, Value
from hush_simulations.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Received:
    """The reports of one round, in the order of their random ids, which says nothing about the devices.

    Args:
        joined_ids: report ids, 16 bytes each.
        bodies: the integers reported, shape (count, integers in a body).
    """

    joined_ids: bytes
    bodies: NDArray[np.int64]

    @property
    def ids(self) -> tuple[str, ...]:
        """Report ids, 32 hexadecimal digits each."""
        starts = range(0, len(self.joined_ids), REPORT_ID_BYTES)
        return tuple(self.joined_ids[start : start + REPORT_ID_BYTES].hex() for start in starts)


def read_received(store: StoreReader, task: Task, round_: int) -> Received:
    """The accepted reports of a round. Blocks while they are read."""
    ids, bodies = bytearray(), array("q")
    for report in store.reports(task.digest, round_):
        ids += report.id
        bodies.extend(report.body)
    return Received(bytes(ids), np.frombuffer(bodies, dtype=np.int64).reshape(-1, task.randomizer.width))


def offers_of(
    task: Task, bodies: NDArray[np.int64]
) -> tuple[Sequence[Mechanism], NDArray[np.int64], NDArray[np.int64]]:
    """The mechanisms of a task, which of them each report followed, and what is left of its body."""
    mechanism = task.randomizer
    if isinstance(mechanism, Offers):
        return mechanism.parts, bodies[:, 0], bodies[:, 1:]
    return (mechanism,), np.zeros(len(bodies), dtype=np.int64), bodies


def decoded(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped.

    Args:
        task: what was asked.
        bodies: shape (count, integers in a body).

    Raises:
        TypeError: one report is no estimate of a number.
    """
    if not isinstance(task.domain, NumberDomain | BitDomain):
        raise TypeError(f"no decoding for {task.mechanism}")
    parts, offers, rest = offers_of(task, bodies)
    values = np.empty(len(bodies))
    for offer, part in enumerate(parts):
        chosen = offers == offer
        values[chosen] = analysis_of(part).said(part, task.domain, rest[chosen], 0)
    return values


def said(task: Task, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    """What the reports that speak of a category or a coordinate say of it, from 0 to 1; in order of their offers."""
    parts, offers, rest = offers_of(task, bodies)
    each = (analysis_of(part).said(part, task.domain, rest[offers == offer], place) for offer, part in enumerate(parts))
    return np.concatenate(list(each))


def in_words(task: Task, bodies: NDArray[np.int64]) -> list[str]:
    """What each report says: the labels that it names, the coordinates that it drew and their values, or a number."""
    parts, offers, rest = offers_of(task, bodies)
    words = [""] * len(bodies)
    for offer, part in enumerate(parts):
        chosen = np.nonzero(offers == offer)[0]
        for row, text in zip(chosen, analysis_of(part).in_words(part, task.domain, rest[chosen]), strict=True):
            words[row] = text
    return words


Engine = Literal["mqtt", "memory", "bulk"]
Drawing = Literal["auto", "tally", "devices"]
"""What the bulk engine draws: the tally of a round at once, or the report of every device."""

ABSENT = "absent"
"""Why a device sends nothing that dropped out, or never answers."""

_DEFAULT_CONNECTIONS: dict[Engine, int] = {"mqtt": 20, "memory": 2, "bulk": 1}


class StoppedError(Exception):
    """The simulation was stopped before it had a result."""


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
        by_group: in bulk, of each group how many devices answered, and their truth; empty where there are none.
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
    by_group: "tuple[tuple[int, tuple[float | None, ...]], ...]" = ()
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


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number.

    Args:
        smallest: smallest legal value.
        largest: largest legal value.
        meaning: what a person should write.
        example: a legal value.
    """

    smallest: int
    largest: int
    meaning: str
    example: int

    def check(self, value: int, option: str, remedy: str) -> int:
        """The value itself.

        Raises:
            OptionError: it is out of range.
        """
        if not self.smallest <= value <= self.largest:
            raise OptionError(option, f"{str(value)[:40]} is outside {self.smallest} to {self.largest}; {remedy}")
        return value


CLIENTS = Whole(1, MOST_CLIENTS, "how many devices report", 500)
ROUNDS = Whole(1, 1000, "how often every device is asked", 3)
CONNECTIONS = Whole(1, 500, "over how many connections the devices are spread", 20)
WORKERS = Whole(1, 64, "how many workers draw in bulk", 2)
TRIALS = Whole(1, 1_000_000, "how often each cell of a sweep is tried", 200)
SEED = Whole(0, (1 << 63) - 1, "a seed of the population", 7)


def check_engine(name: str, option: str) -> Engine:
    """The engine of that name.

    Raises:
        OptionError: there is none; `option` is what its message calls the choice.
    """
    if name == "mqtt":
        return "mqtt"
    if name == "memory":
        return "memory"
    if name == "bulk":
        return "bulk"
    raise OptionError(option, f"{name[:40]!r} is not an engine; write mqtt (real sockets), memory or bulk")


def check_drawing(name: str, option: str) -> Drawing:
    """What the bulk engine draws.

    Raises:
        OptionError: it draws no such thing; `option` is what its message calls the choice.
    """
    if name == "auto":
        return "auto"
    if name == "tally":
        return "tally"
    if name == "devices":
        return "devices"
    raise OptionError(option, f"{name[:40]!r} is not what the bulk engine draws; write auto, tally or devices")


def check_size(clients: int, engine: Engine, option: str) -> None:
    """So many devices take too long one by one.

    Raises:
        OptionError: more than `MOST_DEVICES`, and not in bulk.
    """
    if engine != "bulk" and clients > MOST_DEVICES:
        raise OptionError(option, f"{clients} devices are more than {MOST_DEVICES}; choose the bulk engine")


def check_confidence(value: float, option: str, shown: str) -> float:
    """The confidence of an error bar, strictly between 0 and 1.

    Args:
        value: finite.
        option: what a message calls it.
        shown: the value as it was typed.

    Raises:
        OptionError: it is no confidence; a percentage is told as a share.
    """
    if not 0 < value < 1:
        share = significant(Fraction(value) / 100, 12)
        remedy = f"for {shown} % write {share}" if 1 < value < 100 else "write for example 0.95"  # noqa: PLR2004 - per cent
        raise OptionError(option, f"{shown[:40]} is not between 0 and 1; {remedy}")
    return value
