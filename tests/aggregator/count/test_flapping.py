"""Many devices behind links that flap: no report is lost or counted twice.

The gateways, the aggregator and the store are real; time is virtual, so that ten minutes of outages take as long as
their events do.
"""

import asyncio
import logging
import random
import sqlite3
from collections import Counter
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from counting import counted, refused
from heights import make_heights
from virtual_time import in_virtual_time

from hush_aggregator import Aggregator, SqliteStore
from hush_client import Gateway, Policy
from hush_client.state.database import FILE_NAME
from hush_common.errors import BrokerError
from hush_common.task import decode_task
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker

BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
GATEWAYS = 10
UP_S, DOWN_S = 6.0, 3.0  # mean seconds for which a link is there, and is not
FATES = {Fate.GOOD: 60, Fate.LATE: 15, Fate.TWICE: 8, Fate.CUT: 7, Fate.LOST: 7, Fate.NEVER: 3}


@dataclass(slots=True)
class Flapping:
    """A run: gateways with many devices each, and everything that goes wrong between them and the broker."""

    directory: Path
    devices: int
    minutes: int
    chance: random.Random = field(default_factory=lambda: random.Random(20_261_121))  # noqa: S311 - repeatable
    fates: Counter[Fate] = field(default_factory=Counter)
    good: bool = False
    minute: int = 0
    began: float = 0.0

    @property
    def store(self) -> Path:
        return self.directory / "store.sqlite3"

    def now(self) -> datetime:
        """The clock of everybody; it stops at the end of a round until everybody has answered."""
        passed = min(asyncio.get_running_loop().time() - self.began, 59)
        return BIRTH + timedelta(minutes=self.minute, seconds=passed)

    def fate(self, _topic: str, _payload: bytes) -> Fate:
        if self.good:
            return Fate.GOOD
        (fate,) = self.chance.choices(list(FATES), list(FATES.values()))
        self.fates[fate] += 1
        return fate

    async def flap(self, link: FaultyTransport) -> None:
        """Take the link away and give it back, while nothing is to be good."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / UP_S))
            if not self.good:
                link.reachable = False
                link.drop()
            await asyncio.sleep(self.chance.expovariate(1 / DOWN_S))
            link.reachable = True

    async def answer(self, gateway: Gateway, device: str) -> None:
        """Answer in this round, at a random moment; ask again where even the task could not be had."""
        await asyncio.sleep(self.chance.uniform(0, 45))
        while True:
            with suppress(BrokerError):
                receipt = await gateway.report(device, "heights", 172.0, timeout=5)
                assert receipt.status in ("sent", "queued"), receipt
                return

    async def run(self) -> None:
        """All minutes, with a good link at the end of each, until nothing waits."""
        broker = MemoryBroker()
        payload = make_heights(epsilon="10", rounds=self.minutes, round_every="1m", opens=BIRTH.isoformat())
        async with AsyncExitStack() as stack:
            store = stack.enter_context(SqliteStore(self.store))
            aggregator = Aggregator(broker.bus(), store, tasks=(decode_task(payload),), clock=self.now)
            background: list[asyncio.Task[Any]] = [asyncio.create_task(aggregator.run())]
            gateways = []
            for number in range(GATEWAYS):
                link = FaultyTransport(broker.transport(), self.fate, lambda: self.chance.uniform(0.1, 20))
                policy, state = Policy(Fraction(10), Fraction(10)), self.directory / f"g{number}"
                gateway = Gateway(link, name=f"g{number}", state=state, policy=policy, spread=5, clock=self.now)
                gateways.append(await stack.enter_async_context(gateway))
                background.append(asyncio.create_task(self.flap(link)))
            for minute in range(self.minutes):
                self.minute, self.began = minute, asyncio.get_running_loop().time()
                await asyncio.gather(*(self.answer(gateways[n % GATEWAYS], f"d{n}") for n in range(self.devices)))
                self.good = True
                assert all(await asyncio.gather(*(gateway.flush(timeout=600) for gateway in gateways)))
                await asyncio.sleep(40)
                self.good = False
            for one in background:
                one.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    def charges(self) -> Counter[tuple[str, int]]:
        """How often each device was charged for each round, by the ledgers of all gateways."""
        charged: Counter[tuple[str, int]] = Counter()
        for number in range(GATEWAYS):
            with closing(sqlite3.connect(self.directory / f"g{number}" / FILE_NAME)) as reader:
                charged.update(reader.execute("SELECT device, round FROM charge").fetchall())
                assert reader.execute("SELECT 1 FROM outbox").fetchone() is None
        return charged


@pytest.mark.parametrize(
    ("devices", "minutes"),
    [
        pytest.param(30, 2, marks=pytest.mark.medium),
        pytest.param(1000, 10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_links_that_flap_lose_and_double_nothing(
    memory_path: Path, caplog: pytest.LogCaptureFixture, devices: int, minutes: int
) -> None:
    caplog.set_level(logging.ERROR, "hush_client")  # pytest keeps every line, with the error that it tells of
    run = Flapping(memory_path, devices, minutes)
    in_virtual_time(run.run())
    assert counted(run.store) == devices * minutes
    assert refused(run.store).keys() == {"duplicate"}
    assert run.charges() == Counter({(f"d{n}", minute): 1 for n in range(devices) for minute in range(minutes)})
    assert run.fates.keys() == set(FATES), "something never went wrong, so that this proved nothing"
