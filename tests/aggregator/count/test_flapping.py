"""Many devices behind links that flap: no report is lost or counted twice, and memory stays as it was.

The gateways, the aggregator and the store are real; time is virtual, so that ten minutes of outages take as long as
their events do.
"""

import asyncio
import gc
import logging
import random
import sqlite3
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from counting import counted, refused
from heights import make_heights
from virtual_time import VirtualLoop

from hush_aggregator import Aggregator, SqliteStore
from hush_client import Gateway, Policy
from hush_client.state.database import FILE_NAME
from hush_common.errors import BrokerError
from hush_common.task import decode_task
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker

pytestmark = pytest.mark.medium

_LOG = logging.getLogger("hush.soak")
_BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
_GATEWAYS = 10
_UP, _DOWN = 6.0, 3.0  # mean seconds for which a link is there, and is not
_CALM = 40.0  # seconds after which everybody is connected again, so that minutes can be compared
_GROWTH = 130_000  # bytes; runs differ by 40 000, and a leak in every outage makes 260 000
_FATES = {Fate.GOOD: 60, Fate.LATE: 15, Fate.TWICE: 8, Fate.CUT: 7, Fate.LOST: 7, Fate.NEVER: 3}


@dataclass(slots=True)
class Flapping:
    """A run: gateways with many devices each, and everything that goes wrong between them and the broker."""

    directory: Path
    devices: int
    minutes: int
    chance: random.Random
    fates: Counter[Fate] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    good: bool = False
    minute: int = 0
    began: float = 0.0

    @property
    def store(self) -> Path:
        return self.directory / "store.sqlite3"

    def now(self) -> datetime:
        """The clock of everybody; it stops at the end of a round until everybody has answered."""
        passed = min(asyncio.get_running_loop().time() - self.began, 59)
        return _BIRTH + timedelta(minutes=self.minute, seconds=passed)

    def fate(self, _topic: str, _payload: bytes) -> Fate:
        if self.good:
            return Fate.GOOD
        (fate,) = self.chance.choices(list(_FATES), list(_FATES.values()))
        self.fates[fate] += 1
        return fate

    async def flap(self, link: FaultyTransport) -> None:
        """Take the link away and give it back, while nothing is to be good."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / _UP))
            if not self.good:
                link.reachable = False
                link.drop()
            await asyncio.sleep(self.chance.expovariate(1 / _DOWN))
            link.reachable = True

    async def answer(self, gateway: Gateway, device: str) -> None:
        """Answer in this round, at a moment of one's own; ask again where even the task could not be had."""
        await asyncio.sleep(self.chance.uniform(0, 45))
        while True:
            with suppress(BrokerError):
                receipt = await gateway.report(device, "heights", 172.0, timeout=5)
                assert receipt.status in ("sent", "queued"), receipt
                self.statuses[receipt.status] += 1
                return

    async def drain(self, gateways: list[Gateway]) -> None:
        """A good link for everybody, until nothing waits."""
        self.good = True
        assert all(await asyncio.gather(*(gateway.flush(timeout=600) for gateway in gateways)))
        await asyncio.sleep(_CALM)
        self.good = False

    async def run(self, measure: Callable[[], int]) -> list[int]:
        """All minutes, each drained at its end; what `measure` said after each."""
        broker = MemoryBroker()
        task = make_heights(epsilon="10", rounds=self.minutes, round_every="1m", opens=_BIRTH.isoformat())
        measured = []
        async with AsyncExitStack() as stack:
            store = stack.enter_context(SqliteStore(self.store))
            aggregator = Aggregator(broker.bus(), store, tasks=(decode_task(task),), clock=self.now)
            background: list[asyncio.Task[Any]] = [asyncio.create_task(aggregator.run(), name="aggregator")]
            gateways = []
            for number in range(_GATEWAYS):
                link = FaultyTransport(broker.transport(), self.fate, lambda: self.chance.uniform(0.1, 20))
                gateway = Gateway(
                    link,
                    name=f"g{number}",
                    state=self.directory / f"g{number}",
                    policy=Policy(Fraction(10), Fraction(10)),
                    spread=5,
                    clock=self.now,
                )
                gateways.append(await stack.enter_async_context(gateway))
                background.append(asyncio.create_task(self.flap(link), name=f"flap-{number}"))
            for minute in range(self.minutes):
                self.minute, self.began = minute, asyncio.get_running_loop().time()
                await asyncio.gather(*(self.answer(gateways[n % _GATEWAYS], f"d{n}") for n in range(self.devices)))
                await self.drain(gateways)
                measured.append(measure())
            await self.reach(self.devices * self.minutes)
            for one in background:
                one.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        return measured

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(60):
            while counted(self.store) < count:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.1)

    def charges(self) -> Counter[tuple[str, int]]:
        """How often each device was charged for each round, by the ledgers of all gateways."""
        charged: Counter[tuple[str, int]] = Counter()
        for number in range(_GATEWAYS):
            with closing(sqlite3.connect(self.directory / f"g{number}" / FILE_NAME)) as reader:
                charged.update(reader.execute("SELECT device, round FROM charge").fetchall())
                assert reader.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        return charged


def allocated() -> int:
    """Bytes that the device's code holds now, as Python allocated them."""
    gc.collect()
    ours = [
        tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}/*") for name in ("hush_client", "hush_common")
    ]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


def growth(held: list[int]) -> int:
    """By how many bytes the least of the second half exceeds the least of the first: caches come and go."""
    half = len(held) // 2
    return min(held[half:]) - min(held[:half])


def resident() -> int:
    """Bytes of memory that the process holds, where the system tells."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def flapping(directory: Path, devices: int, minutes: int) -> tuple[Flapping, list[int], list[int]]:
    """A whole run; bytes allocated and resident after each minute."""
    run = Flapping(directory, devices, minutes, random.Random(20_261_121))  # noqa: S311 - repeatable on purpose
    loop = VirtualLoop()
    pages: list[int] = []

    def measure() -> int:
        pages.append(resident())
        return allocated()

    tracemalloc.start()
    try:
        held = loop.run_until_complete(run.run(measure))
    finally:
        tracemalloc.stop()
        loop.close()
    _LOG.info("%d devices, %d rounds, %.0f s of virtual time", devices, minutes, loop.time())
    return run, held, pages


@pytest.mark.large
@pytest.mark.parametrize(
    ("devices", "minutes"), [(50, 4), pytest.param(1000, 10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_flapping_links_lose_and_double_nothing_and_memory_stays(
    memory_path: Path, caplog: pytest.LogCaptureFixture, devices: int, minutes: int
) -> None:
    caplog.set_level(logging.ERROR, "hush_client")  # pytest keeps every line, with the error that it tells of
    run, held, pages = flapping(memory_path, devices, minutes)
    _LOG.info("fates %s, receipts %s", {fate.name: n for fate, n in run.fates.items()}, dict(run.statuses))
    _LOG.info("refused %s, allocated %s, resident %s", refused(run.store), held, pages)
    assert counted(run.store) == devices * minutes
    assert refused(run.store).keys() == {"duplicate"}
    assert run.charges() == Counter({(f"d{n}", minute): 1 for n in range(devices) for minute in range(minutes)})
    assert run.fates.keys() == set(_FATES), "something never went wrong, so that this proved nothing"
    assert growth(held) < _GROWTH


@pytest.mark.large
def test_memory_that_grows_with_every_outage_is_seen(memory_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hush_client")  # the lines of every outage, kept by pytest
    _, held, _ = flapping(memory_path, 20, 6)
    assert growth(held) > _GROWTH, held
