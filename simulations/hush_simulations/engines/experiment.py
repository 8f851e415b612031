"""Experiment and outcome: what a simulation does, the ranges of its options, and what it observes."""

import random
import secrets
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.estimate.result import Result
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_common.formatting import significant
from hush_common.mechanisms import Mechanism, Offers
from hush_common.rng import REPORT_ID_BYTES, SystemRng
from hush_common.suggestion import meant
from hush_common.task import Task
from hush_common.wire import Refusal
from hush_simulations.scenarios.population import MOST_CLIENTS, MOST_DEVICES, Observed, Population, Value, means_of
from hush_simulations.scenarios.scenario import Scenario

if TYPE_CHECKING:  # a simulation in bulk has no store
    from hush_aggregator.store import StoreReader


@dataclass(frozen=True, slots=True)
class Received:
    """The reports of one round, in the order of their random ids, which tells nothing about the devices.

    `joined_ids` has 16 bytes for each report; `bodies` are the integers reported, shape (count, integers in a body).
    """

    joined_ids: bytes
    bodies: NDArray[np.int64]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the reports, 32 hexadecimal digits each."""
        starts = range(0, len(self.joined_ids), REPORT_ID_BYTES)
        return tuple(self.joined_ids[start : start + REPORT_ID_BYTES].hex() for start in starts)


def read_received(store: "StoreReader", task: Task, round_: int) -> Received:
    """Return the accepted reports of a round. It blocks."""
    ids, bodies = bytearray(), array("q")
    for report in store.reports(task.digest, round_):
        ids += report.id
        bodies.extend(report.body)
    return Received(bytes(ids), np.frombuffer(bodies, dtype=np.int64).reshape(-1, task.randomizer.width))


def offers_of(
    task: Task, bodies: NDArray[np.int64]
) -> tuple[Sequence[Mechanism], NDArray[np.int64], NDArray[np.int64]]:
    """Return the mechanisms of a task, the number of the one that each report used, and the rest of its body."""
    mechanism = task.randomizer
    if isinstance(mechanism, Offers):
        return mechanism.parts, bodies[:, 0], bodies[:, 1:]
    return (mechanism,), np.zeros(len(bodies), dtype=np.int64), bodies


def in_words(task: Task, bodies: NDArray[np.int64]) -> list[str]:
    """Return each report as text: the labels that it names, its coordinates with their values, or a number."""
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
"""The reason of a device that dropped out or never answers."""

MOST_OVER_MQTT = 20_000
"""Devices up to which MQTT is the engine where nobody named one; they take half a minute."""

_DEFAULT_CONNECTIONS: dict[Engine, int] = {"mqtt": 20, "memory": 2, "bulk": 1}


Mean = float | tuple[float, ...] | None
"""Of a population: a number, a share of yes, one for each label or coordinate; None if only a sample is known."""


def _mean_of(people: Population, domain: Domain) -> Mean:
    """Return the mean of a population: of rows that people are drawn from, with replacement, that of the rows."""
    if not isinstance(people, Observed) or not people.resampled:
        return people.mean
    found = [mean for mean in means_of(domain, people.values) if mean is not None]
    if len(found) < len(domain.parts):
        return None  # no row has a value
    return tuple(found) if domain.parts_field else found[0]


class StoppedError(Exception):
    """The simulation was stopped before it had a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What to simulate.

    Raises:
        TaskError: the question is not a legal task.
        OptionError: the behaviour of the people does not fit it.
    """

    scenario: Scenario  # the question and its people
    # The true values, one for each device; empty in bulk, which draws them itself. Never part of a representation: they
    # may be personal data.
    values: Sequence[Value] = field(repr=False)
    # For each device the number of the offered epsilon that it takes, chosen without reading its value; empty if the
    # task offers one.
    choices: Sequence[int] = field(default=(), repr=False)
    # For each device the number of its group; empty if the population has none.
    groups: Sequence[int] = field(default=(), repr=False)
    # `"mqtt"` (real sockets), `"memory"`, or `"bulk"` (no devices and no broker, but the same law).
    engine: Engine = "mqtt"
    # Of the engine `"mqtt"`: `"embedded"`, `"mosquitto"`, or an address, which may have a password.
    broker: str = field(default="embedded", repr=False)
    connections: int | None = None  # gateways that share the devices; None for the default
    confidence: float = 0.95  # coverage of the error bars, in (0, 1)
    # Makes the noise repeatable, and therefore not private; None takes it from the operating system.
    noise_seed: int | None = None
    # Of the population, in bulk of the noise too; None if nothing depends on one. drawing, workers, dask: of the bulk
    # engine; the result does not depend on the last two.
    seed: int | None = None
    drawing: Drawing = "auto"
    workers: int = 1
    dask: str | None = None
    task: Task = field(init=False, repr=False, compare=False)
    _mean: Mean = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", self.scenario.task())
        object.__setattr__(self, "_mean", _mean_of(self.scenario.population, self.task.domain))
        self.scenario.panel.check(self.task.domain, self.task.rounds, self.scenario.groups)

    @property
    def clients(self) -> int:
        """The number of devices."""
        return self.scenario.clients if self.engine == "bulk" else len(self.values)

    def value(self, device: int, round_: int) -> Value:
        """Return the true value of a device in a round; not in bulk."""
        return self.scenario.panel.value(self.task.domain, self.values[device], round_)

    def mean(self, round_: int) -> Mean:
        """Return the mean of the population in a round; None if only a sample is known."""
        return self.scenario.panel.mean(self.task.domain, self._mean, round_)

    @property
    def gateways(self) -> int:
        """The number of gateways: never more than devices."""
        wanted = self.connections or self.scenario.gateways or _DEFAULT_CONNECTIONS[self.engine]
        return max(1, min(wanted, len(self.values)))


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The result of one round."""

    result: Result  # of the aggregator
    reporters: Sequence[int] = field(repr=False)  # positions in `Experiment.values` of the devices that sent a report
    clamped: int  # how many of them moved their value into the domain
    declined: Mapping[str, int]  # devices that sent nothing, by their reason
    elapsed: float  # seconds from the first answer to the last commit
    received: Received = field(repr=False)  # the counted reports; empty in bulk
    # In bulk, the mean of the values, of each coordinate, or the share of each label; None if nobody has a value. Not
    # in bulk: the values give it.
    truth: tuple[float | None, ...] | None = None
    known: tuple[int, ...] = ()  # in bulk, the number of values in each mean
    # In bulk, how many devices of each group answered, and their truth.
    by_group: "tuple[tuple[int, tuple[float | None, ...]], ...]" = ()
    tally: Tally | None = None  # in bulk, of the round
    chosen: tuple[int, ...] = ()  # in bulk, how many devices took each epsilon offered; empty if there is one


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
    """Return an experiment of the bulk engine. Without a seed it gets one that is short enough to be typed again."""
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


def count_handled(accepted: int, refused: Mapping[str, int] | Mapping[Refusal, int]) -> int:
    """Return how many different reports were accepted or refused.

    A redelivery is refused as a duplicate, but is not another report: counted, it would hide a lost one.
    """
    return accepted + sum(count for reason, count in refused.items() if reason != Refusal.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Whole:
    """The range of an integer option; its meaning and an example are for messages."""

    smallest: int
    largest: int
    meaning: str
    example: int

    def check(self, value: int, option: str, remedy: str) -> int:
        """Return the value if it is in range, else raise OptionError."""
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
    """Return the engine of that name, or raise OptionError."""
    if name not in get_args(Engine):
        hint = meant(name, get_args(Engine))
        raise OptionError(option, f"{name[:40]!r} is not an engine; write mqtt (real sockets), memory or bulk{hint}")
    return cast("Engine", name)


def check_drawing(name: str, option: str) -> Drawing:
    """Return what the bulk engine draws, or raise OptionError."""
    if name not in get_args(Drawing):
        hint = meant(name, get_args(Drawing))
        raise OptionError(
            option, f"{name[:40]!r} is not what the bulk engine draws; write auto, tally or devices{hint}"
        )
    return cast("Drawing", name)


def check_size(clients: int, engine: Engine, option: str) -> None:
    """Raise OptionError for more than `MOST_DEVICES` devices, except in bulk: they would take too long."""
    if engine != "bulk" and clients > MOST_DEVICES:
        raise OptionError(option, f"{clients} devices are more than {MOST_DEVICES}; choose the bulk engine")


def check_confidence(value: float, option: str, shown: str) -> float:
    """Return a finite confidence, typed as `shown`; raise OptionError if it is not between 0 and 1."""
    if not 0 < value < 1:
        share = significant(Fraction(value) / 100, 12)
        remedy = f"for {shown} % write {share}" if 1 < value < 100 else "write for example 0.95"  # noqa: PLR2004 - per cent
        raise OptionError(option, f"{shown[:40]} is not between 0 and 1; {remedy}")
    return value


SYSTEM = "from the operating system"
"""What a result says about noise that is private."""

NOT_PRIVATE = "from the seed: NOT private"
"""What a result says about noise that is not."""


class SeededRng:
    """A `hush_common.rng.ReportRng` whose noise follows from a seed: the opposite of privacy, on purpose.

    Ids come from the operating system: with ids from the seed, one report would confirm a guess of the seed. `stream`
    is one of many independent sequences of a seed, such as the number of a gateway.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._random = random.Random(f"{seed}/{stream}")  # noqa: S311 - the class says that it is not private

    def randbelow(self, n: int, /) -> int:
        return self._random.randrange(n)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)

    def report_id(self) -> bytes:
        self._random.randbytes(REPORT_ID_BYTES)  # as when ids came from the seed: the noise of a seed stays the same
        return SystemRng().report_id()
