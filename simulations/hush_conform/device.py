"""A device under test: the program, its state, its value and its own broker."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hush_common.recall import Recall, encode_recall
from hush_common.topics import recall_topic, report_topic, task_topic
from hush_common.wire import Frame, decode
from hush_conform.broker import DeviceBroker, Publication
from hush_conform.pace import Patience
from hush_conform.program import Output, Place, Program

_PAUSE = 0.2
"""Seconds between the end of a program and its next start."""


@dataclass
class Setup:
    """How devices are started in this run."""

    command: Sequence[str]
    directory: Path
    timeout: float = 10.0  # seconds for an answer, from the start of the program
    jobs: int = 4  # devices that run at the same time
    websockets: bool = False
    batch: int = 1  # tasks that one run of the program answers
    max_epsilon: str = "4"
    stops: bool = False  # whether the first fault is enough
    #: Seconds from the delivery of a task to its answer, at most so far: how long silence is waited for.
    slowest: float = 0.0
    ids: list[bytes] = field(default_factory=list)  # of all reports, each once
    numbers: Iterator[int] = field(default_factory=itertools.count)
    room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.room = asyncio.Semaphore(self.jobs)

    @property
    def silence(self) -> float:
        """Seconds without a report after which a device is silent: more than it took for any answer so far."""
        return min(max(1.0, 3 * self.slowest + 0.5), self.timeout)

    @asynccontextmanager
    async def device(self, *tasks: str, value: str | None = "172.5", spread: float = 0.0) -> AsyncIterator["Device"]:
        """Yield a new device with an empty state; wait until there is room for it. Its program is not started yet."""
        async with self.room:
            number = next(self.numbers)
            directory = self.directory / f"{number}"
            (directory / "state").mkdir(parents=True, mode=0o700)
            async with DeviceBroker().running(websockets=self.websockets) as broker:
                device = Device(self, broker, directory, tasks=tasks, sender=f"conform-{number}", spread=spread)
                device.set_value(value)
                try:
                    yield device
                finally:
                    await device.kill()
                    self.ids += device.ids


class Device:
    """One device with its broker."""

    def __init__(
        self, setup: Setup, broker: DeviceBroker, directory: Path, *, tasks: Sequence[str], sender: str, spread: float
    ) -> None:
        self.setup: Setup = setup
        self.broker: DeviceBroker = broker
        self.tasks: Sequence[str] = tasks
        self.sender: str = sender
        self.spread: float = spread
        self.state: Path = directory / "state"
        self.output: Output = Output()
        self._value_file = directory / "value"
        self._program: Program | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.codes: list[int] = []  # exit codes of the runs that ended by themselves
        self.started: float = 0.0

    def set_value(self, value: str | None) -> None:
        """Replace the value; None is a missing one. A reader sees the old one or the new one."""
        fresh = self._value_file.with_suffix(".new")
        fresh.write_text("" if value is None else f"{value}\n", encoding="utf-8")
        fresh.replace(self._value_file)

    def publish(self, task: str, payload: bytes) -> None:
        """Publish a task, retained; an empty payload withdraws it."""
        self.broker.retain(task_topic(task), payload)

    def recall(self, task: str, digest: bytes, identifier: bytes, over: int = 1) -> None:
        """Publish a recall of a task, retained."""
        self.broker.retain(recall_topic(task), encode_recall(Recall(task, digest, identifier, over)))

    def topic(self, task: str) -> str:
        """The only topic on which this device may report."""
        return report_topic(task, self.sender)

    @property
    def reports(self) -> list[Publication]:
        return self.broker.publications

    @property
    def frames(self) -> list[bytes]:
        """The different payloads, in the order in which each was first sent."""
        return list(dict.fromkeys(one.payload for one in self.reports))

    def delay(self, task: str) -> float:
        """Return the seconds from the delivery of a task to its first report."""
        sent = next(one.at for one in self.reports if one.topic == self.topic(task) or len(self.tasks) == 1)
        return sent - self.broker.delivered.get(task_topic(task), self.started)

    @property
    def ids(self) -> list[bytes]:
        """The ids of the reports in all different messages."""
        frames = [decode(payload) for payload in self.frames]
        return [report.id for frame in frames if isinstance(frame, Frame) for report in frame.reports]

    async def start(self) -> None:
        """Start the program if it does not run."""
        if self.is_running:
            return
        scheme, path = ("ws", "/mqtt") if self.setup.websockets else ("mqtt", "")
        place = Place(
            broker=f"{scheme}://127.0.0.1:{self.broker.port}{path}",
            host="127.0.0.1",
            port=self.broker.port,
            tasks=self.tasks,
            sender=self.sender,
            state=self.state,
            value_file=self._value_file,
            max_epsilon=self.setup.max_epsilon,
            spread=f"{self.spread:g}",
        )
        if self._program is not None:
            await self._program.kill()  # it has ended: what it has left behind
        self.broker.runs += 1
        self.broker.delivered.clear()  # this run has to get its tasks first
        self.started = time.monotonic()
        self._program = await Program.start(self.setup.command, place, self.output)
        self.broker.pace.pid = self._program.pid
        self._watcher = asyncio.create_task(self._watch(self._program), name="conform-watch")

    async def _watch(self, program: Program) -> None:
        self.codes.append(await program.ended())
        self.broker.notify()

    @property
    def is_running(self) -> bool:
        return self._watcher is not None and not self._watcher.done()  # it is done when the exit code is known

    async def kill(self) -> None:
        """End the program as a power cut does."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self._program is not None:
            await self._program.kill()
        self._program = self._watcher = self.broker.pace.pid = None

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def until(self, condition: Callable[[], bool], patience: float | Patience | None = None) -> bool:
        """Run the program until a condition holds, again whenever it ends; return whether it does in time.

        Raises:
            StarvedError: the program gets too little of the machine.
        """
        if not isinstance(patience, Patience):
            patience = Patience(self.broker.pace, self.setup.timeout if patience is None else patience)
        while not condition() and patience.left > 0:
            if not self.is_running:
                await self.start()
            await self.broker.wait(lambda: condition() or not self.is_running, patience)
            if not condition() and not self.is_running:
                await asyncio.sleep(_PAUSE)
                patience.spend()
        return condition()

    async def until_reports(self, count: int, seconds: float | None = None) -> bool:
        return await self.until(lambda: len(self.reports) >= count, seconds)

    async def run_idle(self, condition: Callable[[], bool] = lambda: False) -> bool:
        """Run the program long enough that it would have sent something; return early if a condition holds.

        That is until it ends by itself, or until it has been silent for `Setup.silence` since it got its tasks.
        """
        await self.start()
        topics = [task_topic(task) for task in self.tasks]

        def has_tasks() -> bool:
            return condition() or not self.is_running or all(topic in self.broker.delivered for topic in topics)

        await self.broker.wait(has_tasks, self.setup.timeout)
        await self.broker.wait(lambda: condition() or not self.is_running, self.setup.silence + self.spread)
        return condition()
