"""Gateways, a mosquitto and a `hush serve`, all real, of which the last two are killed again and again."""

import asyncio
import atexit
import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from servers import Mosquitto
from stored import counted_ids

from hush_aggregator.recalls import RecallReason
from hush_client import Gateway, MqttTransport
from hush_client.state.database import FILE_NAME
from hush_common.broker_url import BrokerUrl

__all__ = ["BARE", "TASK", "Chaos", "Serve", "spent"]

BARE = ""
"""A mosquitto with `persistence true`, and nothing else that tells it to lose less."""
TASK = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}


_STARTED: "list[subprocess.Popen[bytes]]" = []


@atexit.register
def _end_all() -> None:
    """End what a test that failed has left behind."""
    for process in _STARTED:
        if process.poll() is None:
            process.kill()
            process.wait(60)
    _STARTED.clear()


@dataclass
class Serve:
    """`hush serve` in a process of its own, in a hurry (`hasty_serve`).

    Args:
        url: the broker.
        directory: where its store is.
        over: seconds over which its recalls are spread at least; 0 for no recalls.
        per_second: reports that a recall brings each second.
    """

    url: str
    directory: Path
    over: int = 2
    per_second: int = 20_000
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def store(self) -> Path:
        return self.directory / "hush.sqlite3"

    @property
    def log(self) -> str:
        path = self.directory / "serve.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def start(self) -> None:
        task = self.directory / "task.json"
        task.write_text(json.dumps(TASK), encoding="utf-8")
        program = [sys.executable, str(Path(__file__).parent / "hasty_serve.py"), str(self.over), str(self.per_second)]
        command = [*program, "serve", "--broker", self.url, "--store", str(self.store), "--task", str(task)]
        _end_all()
        with (self.directory / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log)
        _STARTED.append(self.process)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        return process.wait(60)

    async def connected(self, times: int = 1) -> None:
        """Wait until it has said so as often as this."""
        async with asyncio.timeout(60):
            while self.log.count("connected to") < times:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.05)

    def told(self) -> dict[RecallReason, int]:
        """How often it recalled, and why."""
        return {cause: self.log.count(cause.value) for cause in RecallReason}

    def counted(self) -> tuple[int, int]:
        """Rows, and n of the tally, at one moment."""
        if not self.store.exists():
            return 0, 0
        ids, n = counted_ids(self.store)
        return len(ids), n


@dataclass
class Chaos:
    """A run.

    Args:
        mosquitto: the broker, started.
        serve: the aggregator, not started.
        directory: for the states of the gateways.
        gateways: how many, each with a connection of its own.
        devices: how many behind each.
        seconds: over which they answer, and over which both others are killed.
        kills: how often each is killed.
        seed: of the moments.
    """

    mosquitto: Mosquitto
    serve: Serve
    directory: Path
    gateways: int
    devices: int
    seconds: float
    kills: int
    seed: int = 2027
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def reports(self) -> int:
        return self.gateways * self.devices

    def state(self, number: int) -> Path:
        return self.directory / f"gateway-{number}"

    async def run(self, patience: float) -> int:
        """Let it happen; return how many reports are counted in the end, or after so many seconds of waiting."""
        self.serve.start()
        await self.serve.connected()
        async with AsyncExitStack() as stack:
            there = [await stack.enter_async_context(self._gateway(number)) for number in range(self.gateways)]
            async with asyncio.TaskGroup() as group:
                group.create_task(self._kill(self._kill_broker))
                group.create_task(self._kill(self._kill_aggregator))
                for gateway in there:
                    group.create_task(self._answer(gateway))
            async with asyncio.timeout(max(patience, 120)):
                await asyncio.gather(*(gateway.flush(timeout=None) for gateway in there))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while self.serve.counted()[0] < self.reports:  # noqa: ASYNC110 - another process's file
                        await asyncio.sleep(0.2)
        assert self.serve.end(signal.SIGTERM) == 0
        rows, n = self.serve.counted()
        assert rows == n
        return rows

    @asynccontextmanager
    async def _gateway(self, number: int) -> AsyncIterator[Gateway]:
        transport = MqttTransport(BrokerUrl.parse(self.mosquitto.url), f"g{number}")
        async with Gateway(
            transport, name=f"g{number}", state=self.state(number), spread=1.0, recall_every=1.0
        ) as gateway:
            yield gateway

    async def _answer(self, gateway: Gateway) -> None:
        """All its devices answer, a few at a time."""
        portions = 20
        for portion in range(portions):
            devices = range(portion * self.devices // portions, (portion + 1) * self.devices // portions)
            began = monotonic()
            receipts = await gateway.report_many("heights", {f"d{n}": 0.5 for n in devices}, timeout=120)
            for receipt in receipts.values():
                self.statuses[receipt.status] = self.statuses.get(receipt.status, 0) + 1
            await asyncio.sleep(max(0.0, self.seconds / portions - (monotonic() - began)))

    async def _kill(self, kill: "Callable[[float], Awaitable[None]]") -> None:
        chance = random.Random(f"{self.seed} {kill.__name__}")  # noqa: S311 - repeatable on purpose
        moments = sorted(chance.uniform(0.05, 1.0) * self.seconds for _ in range(self.kills))
        began = monotonic()
        for moment in moments:
            await asyncio.sleep(max(0.0, began + moment - monotonic()))
            await kill(chance.uniform(0.0, 0.5))

    async def _kill_broker(self, away: float) -> None:
        self.mosquitto.kill()
        await asyncio.sleep(away)
        await asyncio.to_thread(self.mosquitto.start)

    async def _kill_aggregator(self, away: float) -> None:
        assert self.serve.end(signal.SIGKILL) == -signal.SIGKILL
        await asyncio.sleep(away)
        self.serve.start()


def spent(state: Path) -> tuple[int, int]:
    """Charges in the ledgers of a gateway, and devices that they are of."""
    with closing(sqlite3.connect(state / FILE_NAME)) as reader:
        charges, devices = reader.execute("SELECT count(*), count(DISTINCT device) FROM charge").fetchone()
    return charges, devices
