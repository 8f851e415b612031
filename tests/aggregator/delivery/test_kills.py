"""Whatever is killed, each report counts once: a real `hush serve`, a real mosquitto and real gateways.

mosquitto has `persistence true` and nothing else where it is killed, too: a SIGKILL takes all that it acknowledged and
did not deliver.
"""

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from counting import refused
from processes import HEIGHTS, Serve, fill, report_id, retain, slowed, spent
from servers import Mosquitto
from waiting import until, wait_until

from hush_aggregator import SqliteReader
from hush_client import Gateway, MqttTransport
from hush_common.task import make_task
from hush_common.topics import task_topic

pytestmark = [pytest.mark.large, pytest.mark.face]

BODIES = [(k - 50,) for k in range(100)]


def foreign(count: int) -> list[tuple[str, bytes]]:
    """Retained tasks of another store."""
    draft = {"epsilon": "1", "title": "x" * 150, "domain": {"kind": "bit"}}
    return [(task_topic(f"f{place}"), make_task(draft | {"id": f"f{place}"}).payload) for place in range(count)]


@pytest.mark.parametrize(
    ("reports", "kills"),
    [(15_000, 3), pytest.param(1_000_000, 10, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_a_backlog_counts_once_however_often_serve_is_killed(
    mosquitto: Mosquitto, tmp_path: Path, reports: int, kills: int
) -> None:
    """Next to hundreds of tasks of others, and on a quarter of a core."""
    serve = Serve(mosquitto.url, tmp_path, None).start()
    serve.until_subscribed()
    assert serve.end() == 0
    retain(mosquitto.port, foreign(min(1000, reports // 50)))
    fill(mosquitto.port, HEIGHTS, range(reports), bodies=BODIES)
    dice = random.Random(1)  # noqa: S311 - moments, not secrets
    for start, end in enumerate([*sorted(dice.randrange(1, reports) for _ in range(kills)), reports], 2):
        serve.start()
        serve.until_connected(start)  # it may have counted more than the next end asks for
        with slowed(serve):
            wait_until(lambda end=end: serve.n >= end, 60 + reports / 1000)
        if end < reports:
            serve.end(signal.SIGKILL)
            assert len(serve.ids()) >= end
        with SqliteReader(serve.store) as reader:
            assert all(step.n <= serve.n for step in reader.steps(HEIGHTS.digest, 0))
    with SqliteReader(serve.store) as reader:
        wait_until(lambda: any(step.n == reports for step in reader.steps(HEIGHTS.digest, 0)))
    assert serve.end() == 0
    assert sorted(serve.ids()) == sorted(map(report_id, range(reports)))
    with SqliteReader(serve.store) as reader:
        sums = [sum(body[0] ** power for body in BODIES) * reports // 100 for power in (1, 2)]
        assert list(reader.tally(HEIGHTS.digest, 0).moments[:2]) == sums
        assert reader.steps(HEIGHTS.digest, 0)[-1].n == reports
    assert refused(serve.store).keys() <= {"duplicate"}
    assert "Traceback" not in serve.log


@dataclass
class Chaos:
    """Gateways answer, while mosquitto and `hush serve` are killed at random moments.

    Args:
        mosquitto: the broker, started.
        serve: the aggregator, not started.
        gateways: how many, each with a connection of its own.
        devices: how many behind each.
        seconds: over which they answer, and over which both others are killed.
        kills: how often each is killed.
    """

    mosquitto: Mosquitto
    serve: Serve
    gateways: int
    devices: int
    seconds: float
    kills: int
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def reports(self) -> int:
        return self.gateways * self.devices

    def state(self, number: int) -> Path:
        return self.serve.directory / f"gateway-{number}"

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
            await asyncio.gather(*(gateway.flush(timeout=None) for gateway in there))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while self.serve.n < self.reports:  # noqa: ASYNC110 - another process's file
                        await asyncio.sleep(0.2)
        assert self.serve.end() == 0
        return len(self.serve.ids())

    @asynccontextmanager
    async def _gateway(self, number: int) -> AsyncIterator[Gateway]:
        transport = MqttTransport(self.mosquitto.url, f"g{number}")
        async with Gateway(
            transport, name=f"g{number}", state=self.state(number), spread=1.0, recall_every=1.0
        ) as gateway:
            yield gateway

    async def _answer(self, gateway: Gateway) -> None:
        """All its devices answer, a few at a time."""
        portions = 20
        for portion in range(portions):
            devices = range(portion * self.devices // portions, (portion + 1) * self.devices // portions)
            began = time.monotonic()
            receipts = await gateway.report_many("heights", {f"d{n}": 0.5 for n in devices}, timeout=120)
            self.statuses.update(receipt.status for receipt in receipts.values())
            await asyncio.sleep(max(0.0, self.seconds / portions - (time.monotonic() - began)))

    async def _kill(self, kill: Callable[[float], Awaitable[None]]) -> None:
        chance = random.Random(kill.__name__)  # noqa: S311 - repeatable on purpose
        moments = sorted(chance.uniform(0.05, 1.0) * self.seconds for _ in range(self.kills))
        began = time.monotonic()
        for moment in moments:
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            await kill(chance.uniform(0.0, 0.5))

    async def _kill_broker(self, away: float) -> None:
        self.mosquitto.kill()
        await asyncio.sleep(away)
        await asyncio.to_thread(self.mosquitto.start)

    async def _kill_aggregator(self, away: float) -> None:
        assert self.serve.end(signal.SIGKILL) == -signal.SIGKILL
        await asyncio.sleep(away)
        self.serve.start()


async def test_thousands_count_once_although_broker_and_aggregator_die(bare: Mosquitto, memory_path: Path) -> None:
    run = Chaos(bare, Serve(bare.url, memory_path), gateways=4, devices=1000, seconds=6.0, kills=2)
    assert await run.run(patience=120) == run.reports
    assert [spent(run.state(number)) for number in range(4)] == [(1000, 1000)] * 4


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("over", [10, 0], ids=["recalled", "the twin without recalls"])
async def test_two_hundred_thousand_reports_and_ten_deaths_of_each(
    bare: Mosquitto, memory_path: Path, over: int
) -> None:
    run = Chaos(bare, Serve(bare.url, memory_path, over), gateways=50, devices=4000, seconds=80.0, kills=10)
    counted = await run.run(patience=300 if over else 20)
    sys.stdout.write(f"\n{counted} of {run.reports} counted; {run.statuses}\n{run.serve.told()}\n")
    if over:
        assert counted == run.reports
        assert {spent(run.state(number)) for number in range(50)} == {(4000, 4000)}
    else:
        assert counted < run.reports


# One of them loses, stands still, or is put back

DEVICES = 400


@asynccontextmanager
async def gateway(bare: Mosquitto, directory: Path) -> AsyncIterator[Gateway]:
    """With a second between the recalls that it obeys."""
    transport = MqttTransport(bare.url, "g")
    async with Gateway(transport, name="g", state=directory / "g", spread=0, recall_every=1.0) as there:
        yield there


async def answer(there: Gateway, part: int, parts: int = 2) -> None:
    devices = range(part * DEVICES // parts, (part + 1) * DEVICES // parts)
    receipts = await there.report_many("heights", {f"d{n}": 0.5 for n in devices}, timeout=120)
    assert {receipt.status for receipt in receipts.values()} == {"sent"}


async def counts(serve: Serve, reports: int) -> None:
    await until(lambda: serve.n >= reports)


def causes(serve: Serve) -> dict[str, int]:
    """Why it recalled, and how often."""
    return {cause.name: times for cause, times in serve.told().items() if times}


@pytest.mark.parametrize("over", [2, 0], ids=["recalled", "the twin without a recall"])
async def test_what_waited_on_a_broker_that_was_killed_is_counted(
    bare: Mosquitto, memory_path: Path, over: int
) -> None:
    serve = Serve(bare.url, memory_path, over).start()
    async with gateway(bare, memory_path) as there:
        await answer(there, 0)
        await counts(serve, DEVICES // 2)
        serve.end(signal.SIGKILL)
        await answer(there, 1)
        bare.kill()
        bare.start()
        serve.start()
        await serve.connected(2)
        if over:
            await counts(serve, DEVICES)
        else:
            assert (await there.report("last", "heights", 0.5)).status == "sent"
            await counts(serve, DEVICES // 2 + 1)
    assert serve.end() == 0
    assert len(serve.ids()) == (DEVICES if over else DEVICES // 2 + 1)
    assert spent(memory_path / "g")[0] == (DEVICES if over else DEVICES + 1)
    assert causes(serve) == ({"SESSION": 1} if over else {})


async def test_a_broker_put_back_from_an_old_snapshot_is_found(bare: Mosquitto, memory_path: Path) -> None:
    memory = bare.directory / "mosquitto.db"
    serve = Serve(bare.url, memory_path).start()
    async with gateway(bare, memory_path) as there:
        await answer(there, 0)
        await counts(serve, DEVICES // 2)
        serve.end(signal.SIGKILL)
        bare.stop()  # which writes its memory, the session too
        snapshot = memory.read_bytes()
        bare.start()
        await answer(there, 1)
        bare.kill()
        memory.write_bytes(snapshot)
        bare.start()
        serve.start()
        await counts(serve, DEVICES)
    assert serve.end() == 0
    assert causes(serve) == {"RESTART": 1}


async def test_what_stands_still_for_a_while_loses_nothing(bare: Mosquitto, memory_path: Path) -> None:
    serve = Serve(bare.url, memory_path).start()
    async with gateway(bare, memory_path) as there:
        await answer(there, 0)
        await counts(serve, DEVICES // 2)
        assert serve.process is not None
        assert bare.process is not None
        for part, process in enumerate((serve.process, bare.process), 2):
            process.send_signal(signal.SIGSTOP)
            answering = asyncio.create_task(answer(there, part, 4))
            await asyncio.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            await answering
        await counts(serve, DEVICES)
    assert serve.end() == 0
    assert len(serve.ids()) == DEVICES
    assert causes(serve) == {}
