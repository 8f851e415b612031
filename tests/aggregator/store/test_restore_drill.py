"""The restore drill of docs/operations.md: a store is lost while reports arrive, a backup of minutes ago put back.

A real mosquitto, `hush serve` and `hush store` in processes of their own, and real gateways, which go on answering all
the while. What is counted in the end is every report that was made, once; by its id, and not by its number alone.
"""

import asyncio
import shutil
import signal
import sqlite3
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from counting import refused
from processes import Serve, spent
from servers import Mosquitto
from stored import stored_ids

from hush_aggregator.delivery.recalls import RecallReason
from hush_client import Gateway, MqttTransport
from hush_client.state.database import FILE_NAME
from hush_common.topics import estimate_topic
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.large

GATEWAYS = 4
PORTIONS = 20
SURE_S = 3


@dataclass
class Drill:
    """Reports that arrive, and a store that is lost meanwhile.

    Args:
        mosquitto: started.
        directory: for all files.
        reports: how many devices answer; a quarter is counted at the backup, and a half when the store is lost.
    """

    mosquitto: Mosquitto
    directory: Path
    reports: int
    serve: Serve = field(init=False)
    backed_up: int = field(init=False, default=0)
    lost_at: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.serve = Serve(self.mosquitto.url, self.directory, over=1)

    @property
    def backup(self) -> Path:
        return self.directory / "backup.sqlite3"

    def state(self, number: int) -> Path:
        return self.directory / f"gateway-{number}"

    async def run(self, *, by_hand: bool) -> None:
        self.serve.start()
        await self.serve.connected()
        async with AsyncExitStack() as stack:
            await self._broker_known()
            there = [await stack.enter_async_context(self._gateway(number)) for number in range(GATEWAYS)]
            half = PORTIONS // 2
            first, rest, second = range(half - 1), range(half - 1, half), range(half, PORTIONS)
            answering = asyncio.gather(*(self._answer(gateway, first, pause=0.25) for gateway in there))
            await self._counted(self.reports // 4)
            await hush("store", "backup", str(self.backup), "--store", str(self.serve.store))
            self.backed_up = rows_of(self.backup)
            await answering
            await asyncio.gather(*(self._answer(gateway, rest) for gateway in there))  # not in the backup
            await self._counted(self.reports // 2)
            await self._estimated(self.reports // 2)
            self.serve.end(signal.SIGKILL)
            self.lost_at = self.serve.counted()[0]
            for path in self.directory.glob(f"{self.serve.store.name}*"):
                path.unlink()
            # More answer now than was lost: what waits on the broker must not hide what is missing.
            await asyncio.gather(*(self._answer(gateway, second) for gateway in there))
            if by_hand:
                shutil.copyfile(self.backup, self.serve.store)
            else:
                await hush("store", "restore", str(self.backup), "--store", str(self.serve.store))
            self.serve.start()
            await self._counted(self.reports)
            await asyncio.gather(*(gateway.flush(timeout=60) for gateway in there))
        assert self.serve.end(signal.SIGTERM) == 0

    def check(self, cause: RecallReason) -> None:
        assert self.backed_up < self.lost_at < self.reports
        assert self.serve.counted() == (self.reports, self.reports)
        assert ids_counted(self.serve.store) == {one for n in range(GATEWAYS) for one in ids_made(self.state(n))}
        assert {found for found, times in self.serve.told().items() if times} == {cause}
        assert refused(self.serve.store).keys() <= {"duplicate"}
        each = self.reports // GATEWAYS
        assert [spent(self.state(number)) for number in range(GATEWAYS)] == [(each, each)] * GATEWAYS

    def _gateway(self, number: int) -> Gateway:
        transport = MqttTransport(self.mosquitto.url, f"g{number}")
        return Gateway(transport, name=f"g{number}", state=self.state(number), spread=0.5, recall_every=1.0)

    async def _answer(self, gateway: Gateway, portions: range, pause: float = 0.0) -> None:
        size = self.reports // GATEWAYS // PORTIONS
        for portion in portions:
            devices = range(portion * size, (portion + 1) * size)
            receipts = await gateway.report_many("heights", {f"d{n}": 0.5 for n in devices}, timeout=60)
            assert {receipt.status for receipt in receipts.values()} == {"sent"}
            await asyncio.sleep(pause)  # so that the backup is made while they arrive

    async def _counted(self, reports: int) -> None:
        async with asyncio.timeout(120):
            while self.serve.counted()[0] < reports:  # noqa: ASYNC110 - another process's file has no event
                await asyncio.sleep(0.05)

    async def _broker_known(self) -> None:
        """The store has heard for a while since when the broker is up: that it is another start is no sign later."""
        async with asyncio.timeout(60):
            while True:
                with closing(sqlite3.connect(self.serve.store, timeout=10)) as reader:
                    ((up,),) = reader.execute("SELECT alive - started FROM broker")
                if (up or 0) > SURE_S:
                    return
                await asyncio.sleep(0.2)

    async def _estimated(self, reports: int) -> None:
        """The broker retains an estimate of so many: what a store that is put back by hand is compared with."""
        command = ("mosquitto_sub", "-p", str(self.mosquitto.port), "-t", estimate_topic("heights"))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while f'"n":{reports},'.encode() not in await process.stdout.readline():
                pass
        process.terminate()
        await process.wait()


@pytest.fixture
def broker(memory_path: Path) -> Iterator[Mosquitto]:
    (memory_path / "broker").mkdir()
    settings = "max_queued_messages 0\nmax_inflight_messages 1000\nsys_interval 1"
    server = Mosquitto(memory_path / "broker", settings=settings)
    server.start()
    yield server
    server.stop()


async def test_a_store_that_is_lost_while_reports_arrive_has_them_all_again(
    broker: Mosquitto, memory_path: Path
) -> None:
    drill = Drill(broker, memory_path, 2000)
    await drill.run(by_hand=True)
    drill.check(RecallReason.BEHIND)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_hand", [False, True], ids=["hush store restore", "cp"])
async def test_twenty_thousand_reports_are_counted_after_a_restore(
    broker: Mosquitto, memory_path: Path, by_hand: bool
) -> None:
    drill = Drill(broker, memory_path, 20_000)
    await drill.run(by_hand=by_hand)
    sys.stdout.write(f"\n{drill.backed_up} in the backup, {drill.lost_at} in the store that was lost\n")
    drill.check(RecallReason.BEHIND if by_hand else RecallReason.RESTORED)


async def hush(*arguments: str) -> None:
    done = await asyncio.create_subprocess_exec(sys.executable, "-m", "hush", *arguments, stdout=DEVNULL)
    assert await done.wait() == 0


def rows_of(store: Path) -> int:
    return len(ids_counted(store))


def ids_counted(store: Path) -> set[bytes]:
    return {*stored_ids(store)}


def ids_made(state: Path) -> set[bytes]:
    """Of every report that a gateway has sent: the payloads that it keeps."""
    with closing(sqlite3.connect(state / FILE_NAME)) as reader:
        payloads = [payload for (payload,) in reader.execute("SELECT payload FROM kept")]
    frames = [frame for frame in map(decode, payloads) if isinstance(frame, Frame)]
    assert len(frames) == len(payloads)
    return {report.id for frame in frames for report in frame.reports}
