"""The live engine: real gateways, a real aggregator and a broker, on one question, until every report is counted.

Nothing is skipped: each device charges its ledger and stores its report before the first byte is sent, every report
is one MQTT message, and the aggregator commits it to SQLite before it is acknowledged. The `memory` engine has no
sockets, and its gateways send the reports of many devices in one message, as real ones may.
"""

import asyncio
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.aggregator import Aggregator
from hush_aggregator.result import Result
from hush_aggregator.store.base import CommitOutcome
from hush_aggregator.store.sqlite import SqliteStore
from hush_client.gateway import Gateway
from hush_client.policy import Policy
from hush_client.privacy.answer import FRAME_REPORTS
from hush_client.receipt import Receipt
from hush_common.errors import BrokerError, HushError, flatten_group
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_common.topics import report_topic
from hush_simulations.engines.experiment import (
    ABSENT,
    Experiment,
    Outcome,
    RoundOutcome,
    SeededRng,
    judged,
    read_received,
)
from hush_simulations.engines.network import Network, Trouble, open_network, publish_lies
from hush_simulations.scenarios.behaviour import as_numbers, truthful_count


class VirtualClock:
    """A clock for client and aggregator: the current time and an offset, with which it begins at `start`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._offset = timedelta(0) if start is None else start - datetime.now(UTC)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def turn_to(self, moment: datetime) -> None:
        """Move the clock forward to `moment` (aware); it never goes back."""
        self._offset = max(self._offset, moment - datetime.now(UTC))


_REFUSING, _SHOCKS, _DROPPING = 2, 3, 4  # streams of a seed; 1 chooses epsilons


@dataclass(slots=True)
class Answers:
    """The answers of a round: devices that reported, values clamped to the domain, and others by their reason."""

    reporters: "array[int]" = field(default_factory=lambda: array("q"))
    clamped: int = 0
    declined: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Attendance:
    """Which honest devices answer, as the panel of the scenario says. Liars always do.

    Args:
        refusing: devices that never answer, shape (devices,).
        present: probability that a device answers in a round, shape (rounds, devices); None if all do.
        seed: of the draws of each round.
    """

    refusing: NDArray[np.bool_]
    present: NDArray[np.float64] | None
    seed: int = field(repr=False)

    @classmethod
    def of(cls, experiment: Experiment, truthful: int) -> Self:
        """Return that of the first `truthful` devices."""
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
        """Return the devices that do not answer."""
        missing = self.refusing
        if self.present is not None:
            draws = np.random.default_rng([self.seed, _DROPPING, round_]).random(len(missing))
            missing = missing | (draws >= self.present[round_])
        return frozenset(np.nonzero(missing)[0].tolist())


_CONCURRENT = 2000  # answers in flight, from the first draw to the commit: bounds every queue
_GROUPS = 2  # of devices, at each gateway: one is drawn while another is sent


class DevicePool:
    """Lets devices answer, several of one gateway together.

    That does not change their reports: a gateway draws for its devices one after the other. `declined` is called with
    the number of answers that devices declined.
    """

    def __init__(
        self, experiment: Experiment, task: Task, stop: asyncio.Event, declined: Callable[[int], None]
    ) -> None:
        self._experiment, self._task, self._stop, self._declined = experiment, task, stop, declined
        self._places = asyncio.Semaphore(_CONCURRENT)

    def release(self, answers: int) -> None:
        """Make room for as many answers."""
        for _ in range(answers):
            self._places.release()

    async def ask_all(self, round_: int, queues: Sequence[tuple[Gateway, Iterator[int]]], answers: Answers) -> None:
        """Ask the devices of each gateway, all gateways at the same time, until all have answered or it is stopped."""
        # Devices that choose among offers are asked individually: those of one call have one epsilon.
        largest = 1 if self._experiment.choices else max(1, _CONCURRENT // (_GROUPS * len(queues)))
        groups = _GROUPS if largest > 1 else -(-_CONCURRENT // len(queues))
        async with asyncio.TaskGroup() as group:
            for position, (gateway, devices) in enumerate(queues):
                for worker in range(groups):
                    asking = self._ask(round_, gateway, devices, largest, answers)
                    group.create_task(asking, name=f"hush-devices-{position}-{worker}")

    async def _ask(self, round_: int, gateway: Gateway, devices: Iterator[int], largest: int, answers: Answers) -> None:
        while True:
            places = await self._take_places(largest)
            group = [] if self._stop.is_set() else list(islice(devices, places))
            self.release(places - len(group))
            if not group:
                return
            for device, receipt in zip(group, await self._report(round_, gateway, group), strict=True):
                if receipt.reason is None:
                    answers.reporters.append(device)
                    answers.clamped += receipt.value == "moved"
                else:
                    answers.declined[receipt.reason] += 1
                    self._declined(1)

    async def _take_places(self, most: int) -> int:
        """Wait for one place, and take the free ones: a task that held some and waited for more could wait for ever."""
        await self._places.acquire()
        taken = 1
        while taken < most and not self._places.locked():
            await self._places.acquire()
            taken += 1
        return taken

    async def _report(self, round_: int, gateway: Gateway, group: Sequence[int]) -> list[Receipt]:
        experiment, choices = self._experiment, self._experiment.choices
        receipts = await gateway.report_many(
            self._task.id,
            {f"device-{device}": experiment.value(device, round_) for device in group},
            timeout=None,
            epsilon=self._task.offers[choices[group[0]]] if choices else None,
        )
        return list(receipts.values())


Progress = Callable[[int], None]
"""Called with the number of answers that are counted, refused or declined so far, whenever it changes."""

Watch = Callable[[Result], None]
"""Called with the aggregator's result a few times per second while reports arrive: its `anytime` intervals may
be watched, and no others."""

_FIRST_LOOK_S, _LOOK_EVERY_S = 0.1, 0.25
_LOOK_SHARE = 0.2  # of the time, at most: an estimate of many categories takes long
_GRACE_SECONDS = 5.0  # without a connection before the run is given up
_STALL_SECONDS = 15.0  # without a counted report: the missing ones are lost


async def simulate(
    experiment: Experiment,
    on_progress: Progress | None = None,
    on_look: Watch | None = None,
    stop: asyncio.Event | None = None,
) -> Outcome:
    """Run an experiment to its end, or until `stop` is set: then no further device is asked, but what was sent counts.

    Raises:
        BrokerError: no broker, a login refused, or a connection that stays lost.
        StateError: a device cannot write its state (a full disk).
        StoreError: the aggregator cannot write its store.
    """
    with tempfile.TemporaryDirectory(prefix="hush-simulation-", ignore_cleanup_errors=True) as directory:
        try:
            async with open_network(experiment, Path(directory)) as network:
                return await _Run(
                    experiment,
                    network,
                    Path(directory),
                    stop=stop or asyncio.Event(),
                    on_progress=on_progress or (lambda _: None),
                    on_look=on_look,
                ).run()
        except BaseExceptionGroup as errors:
            raise _reason(errors) from errors


class _Run:
    """One run: asks the devices, waits until their reports are counted, and gives up when they are not."""

    def __init__(
        self,
        experiment: Experiment,
        network: Network,
        directory: Path,
        *,
        stop: asyncio.Event,
        on_progress: Progress,
        on_look: Watch | None,
    ) -> None:
        self._experiment = experiment
        self._network = network
        self._directory = directory
        self._on_progress = on_progress
        self._on_look = on_look
        self._clock = VirtualClock(network.task.opens)
        self._counted = 0  # reports that the aggregator accepted or refused, without redeliveries
        self._settled = 0  # these, and answers that their devices declined
        self._moved = asyncio.Event()
        self._devices = DevicePool(experiment, network.task, stop, self._settle)
        # Over a network each report is a separate message, as of devices with a connection each; with faults too, which
        # are drawn for each message.
        alone = experiment.engine != "memory" or experiment.scenario.faults
        self._frame = 1 if alone else FRAME_REPORTS
        self._stop = stop
        scenario = experiment.scenario
        self._trouble = Trouble(scenario.faults, report_topic(network.task.id, "x")[:-1], experiment.seed or 0)
        self._patience = _STALL_SECONDS * (8 if scenario.faults.lost + scenario.faults.cut else 1)  # links back off
        self._truthful = truthful_count(len(experiment.values), scenario.liars)
        self._attendance = Attendance.of(experiment, self._truthful)

    async def run(self) -> Outcome:
        store = await asyncio.to_thread(SqliteStore, self._directory / "aggregator.sqlite")
        try:
            rounds = await self._with_aggregator(store)
        finally:
            await asyncio.to_thread(store.close)
        return Outcome(self._network.task, tuple(rounds), stopped=self._stop.is_set())

    async def _with_aggregator(self, store: SqliteStore) -> list[RoundOutcome]:
        aggregator = Aggregator(
            self._network.bus,
            store,
            tasks=(self._network.task,),
            name=self._network.aggregator,
            confidence=self._experiment.confidence,
            clock=self._clock,
            on_commit=self._commit,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(aggregator.run(), name="hush-aggregator")
            watching = group.create_task(self._watch_connection(), name="hush-watch-connection")
            async with AsyncExitStack() as stack:
                gateways = [await stack.enter_async_context(self._gateway(number)) for number in self._numbers()]
                rounds = [await self._round(0, gateways, aggregator, store)]
                for number in range(1, self._network.task.rounds):
                    if self._stop.is_set():
                        break
                    rounds.append(await self._round(number, gateways, aggregator, store))
            watching.cancel()
            running.cancel()
        return rounds

    def _numbers(self) -> range:
        return range(self._experiment.gateways)

    def _gateway(self, number: int) -> Gateway:
        seed = self._experiment.noise_seed
        limit = max(Policy().max_epsilon, self._network.task.epsilon)
        return Gateway(
            self._trouble.around(self._network.transport(number)),
            name=self._network.sender(number),
            state=self._directory / f"gateway-{number}",
            # A real device refuses a large epsilon; a simulation shows its effect.
            policy=Policy(max_epsilon=limit, lifetime=limit, sticky=True),
            frame=self._frame,
            spread=0,  # the time of sending reveals nothing here
            rng=None if seed is None else SeededRng(seed, number),
            clock=self._clock,
        )

    async def _round(
        self, number: int, gateways: Sequence[Gateway], aggregator: Aggregator, store: SqliteStore
    ) -> RoundOutcome:
        if (opens := self._network.task.round_opens(number)) is not None:
            self._clock.turn_to(opens)
        before, began = self._counted, time.perf_counter()
        answers = Answers()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(aggregator, number), name="hush-look")
            async with asyncio.TaskGroup() as answering:
                watching = answering.create_task(self._watch_progress(), name="hush-watch-progress")
                await self._answer_all(number, gateways, answers)
                lies = await self._lie(number, answers)
                watching.cancel()
            await self._count(before + len(answers.reporters) + lies - self._trouble.forgotten)
            looking.cancel()
        elapsed = time.perf_counter() - began
        result = await aggregator.estimate(self._network.task.id, number)
        received = await asyncio.to_thread(read_received, store, self._network.task, number)
        count = len(answers.reporters)
        everybody = range(len(self._experiment.values))
        reporters = everybody if count == len(everybody) else tuple(sorted(answers.reporters))
        return RoundOutcome(result, reporters, answers.clamped, answers.declined, elapsed, received)

    async def _answer_all(self, round_: int, gateways: Sequence[Gateway], answers: Answers) -> None:
        if away := self._attendance.away(round_):
            answers.declined[ABSENT] += len(away)
            self._moved_on(len(away))
        truthful = self._truthful
        queues = [
            (gateway, (device for device in range(position, truthful, len(gateways)) if device not in away))
            for position, gateway in enumerate(gateways)
        ]
        await self._devices.ask_all(round_, queues, answers)

    async def _lie(self, round_: int, answers: Answers) -> int:
        """Let the liars publish their reports; return how many different ones there are above one for each."""
        liars = range(self._truthful, len(self._experiment.values))
        answers.reporters.extend(liars)
        if not liars:
            return 0
        seed, number = self._experiment.noise_seed, self._experiment.gateways
        rng = SystemRng() if seed is None else SeededRng(seed, number)
        topic = report_topic(self._network.task.id, self._network.sender(number))
        return await publish_lies(
            self._network.transport(number),  # without faults
            topic,
            self._network.task,
            round_,
            liars=self._experiment.scenario.liars,
            values=[self._experiment.value(device, round_) for device in range(len(self._experiment.values))],
            rng=rng,
        )

    async def _look(self, aggregator: Aggregator, number: int) -> None:
        """Show the estimate repeatedly, rarely enough to slow nothing down."""
        if self._on_look is None:
            return
        counted = -1
        pause = _FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause)
            pause = _LOOK_EVERY_S
            if self._counted == counted:
                continue
            counted, began = self._counted, time.perf_counter()
            self._on_look(await aggregator.estimate(self._network.task.id, number))
            pause = max(_LOOK_EVERY_S, (time.perf_counter() - began) / _LOOK_SHARE)

    def _commit(self, outcome: CommitOutcome) -> None:
        handled = judged(outcome.accepted, outcome.refused)
        self._counted += handled
        self._settle(handled)

    def _settle(self, answers: int) -> None:
        """Note that as many answers are counted or declined."""
        self._devices.release(answers)
        self._moved_on(answers)

    def _moved_on(self, answers: int) -> None:
        self._settled += answers
        self._moved.set()
        self._on_progress(self._settled)

    async def _count(self, expected: int) -> None:
        """Wait until the aggregator has handled that number of reports, or nothing arrives any more."""
        while self._counted < expected:
            if not await self._moves():
                return

    async def _moves(self) -> bool:
        """Whether an answer is settled before patience ends."""
        before = self._settled
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while self._settled == before:
                    await self._moved.wait()
                    self._moved.clear()
        return self._settled > before

    async def _watch_progress(self) -> None:
        """Raise if devices wait for ever, as when the broker admits the aggregator and not them."""
        while await self._moves():
            pass
        raise BrokerError(
            self._network.bus.name,
            f"no report came through for {self._patience:.0f} s, {self._counted} were counted; see its log",
        )

    async def _watch_connection(self) -> None:
        """Raise if the broker is unreachable, at first or for several seconds."""
        bus = self._network.bus
        await bus.attempted.wait()
        if bus.trouble is not None:
            raise bus.trouble
        while True:
            await bus.troubled.wait()
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await bus.connected.wait()
            except TimeoutError:
                raise BrokerError(
                    bus.name, f"vanished after {self._counted} reports were counted; start it, and run again"
                ) from bus.trouble


def _reason(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is meant for a person; a group without one is a bug and is returned itself."""
    return next((error for error in flatten_group(errors) if isinstance(error, HushError)), errors)
