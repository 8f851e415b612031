"""A gateway that is killed at every step: each report is charged once, sent as the same bytes, and counted once."""

import asyncio
import json
import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiomqtt
import pytest
from counting import aggregating, counted, refused
from crash_child import STEPS, Job, encode
from heights import HEIGHTS
from servers import Mosquitto

from hush_client.state.database import FILE_NAME
from hush_common.task import decode_task
from hush_common.topics import ALL_REPORTS
from hush_common.wire import Frame, decode

_DEVICES = 4  # asked at once in one life
_SEED = 20_261_121
_END = "test/end"  # no topic of reports, or the aggregator would count it too
_ONCE_A_LIFE = ("store", "connect", "delete")  # four devices may share one COMMIT or one connection

soak = [pytest.mark.soak, pytest.mark.timeout(1800)]


class Gateways:
    """The lives of one gateway, one after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def live(self, job: Job) -> tuple[int, float]:
        """How it ended, as a return code, and after how many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(encode(job))
        answer = json.loads(await self._process.stdout.readline())
        return answer["end"], answer["seconds"]


@asynccontextmanager
async def gateways() -> AsyncIterator[Gateways]:
    tests = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(tests / "crash_child.py"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tests), *sys.path))},
    )
    try:
        yield Gateways(process)
    finally:
        await process.communicate(b"")  # the end of its input ends it


@dataclass(frozen=True, slots=True)
class Disk:
    """What a state directory holds: report ids by device, amounts spent, and waiting payloads."""

    charges: dict[str, list[str]]
    spent: dict[str, str]
    waiting: list[bytes]

    @classmethod
    def read(cls, state: Path, aside: Path) -> "Disk":
        """Read a copy, so that the successor finds the files just as the dead left them."""
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(state, aside)
        with closing(sqlite3.connect(aside / FILE_NAME)) as reader:
            charges: dict[str, list[str]] = {}
            for device, report_id in reader.execute("SELECT device, report_id FROM charge"):
                charges.setdefault(device, []).append(report_id.hex())
            spent = dict(reader.execute("SELECT device, spent FROM account"))
            waiting = [payload for (payload,) in reader.execute("SELECT payload FROM outbox")]
        return cls(charges, spent, waiting)


@dataclass(slots=True)
class Observer:
    """An independent subscriber: every report on its topic, whether it was counted or not.

    Attributes:
        arrivals: how often each report came, by the hexadecimal digits of its id.
        payloads: the bytes under which it came; more than one set of them is a fault.
    """

    arrivals: Counter[str] = field(default_factory=Counter)
    payloads: dict[str, set[bytes]] = field(default_factory=dict)
    _client: aiomqtt.Client = field(kw_only=True)

    @property
    def again(self) -> int:
        """How many arrivals were not the first of their report."""
        return self.arrivals.total() - len(self.arrivals)

    async def catch_up(self) -> None:
        """Take in everything that the broker acknowledged before this call."""
        await self._client.publish(_END, b"", qos=1)
        async for message in self._client.messages:
            if str(message.topic) == _END:
                return
            assert isinstance(message.payload, bytes)
            self.arrivals.update(self.compare(message.payload))

    def compare(self, payload: bytes) -> list[str]:
        """Keep the bytes under which reports came, or lie in an outbox; return their ids."""
        frame = decode(payload)
        assert isinstance(frame, Frame)
        ids = [report.id.hex() for report in frame.reports]
        for report_id in ids:
            self.payloads.setdefault(report_id, set()).add(payload)
        return ids


@asynccontextmanager
async def observing(mosquitto: Mosquitto) -> AsyncIterator[Observer]:
    """A subscriber to all reports."""
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        await client.subscribe([(ALL_REPORTS, 1), (_END, 1)])
        yield Observer(_client=client)


@dataclass(slots=True)
class Matrix:
    """A broker, a counting aggregator, an independent observer, and a gateway that dies again and again."""

    gateways: Gateways
    observer: Observer
    directory: Path
    job: Job
    kills: int = 0

    @property
    def store(self) -> Path:
        return self.directory / "store.sqlite3"

    def disk(self) -> Disk:
        return Disk.read(Path(self.job.state), self.directory / "aside")

    async def live(self, **how: object) -> tuple[int, float]:
        """One life; after it, whoever was asked counts as asked before. How it ended, and after how many seconds."""
        end, seconds = await self.gateways.live(replace(self.job, **how))  # type: ignore[arg-type]  # fields of a Job
        assert end in (0, -9)
        self.kills += end == -9
        self.job = replace(self.job, again=self.job.again + self.job.fresh)
        return end, seconds

    async def finish(self) -> None:
        """A life that nobody ends: everybody is asked again."""
        receipts = self.directory / "receipts.json"
        end, _ = await self.gateways.live(replace(self.job, fresh=0, receipts=str(receipts)))
        assert end == 0
        disk = self.disk()
        await self.verify(disk)
        answers = json.loads(receipts.read_text(encoding="utf-8"))
        assert {status for status, _ in answers} <= {"sent", "already_answered"}
        assert [[report_id] for _, report_id in answers] == [disk.charges[f"d{n}"] for n in range(self.job.again)]

    async def verify(self, disk: Disk) -> None:
        """Every device is charged once; every charge was sent as one and the same bytes, and counted once."""
        await self.observer.catch_up()
        arrivals, payloads = self.observer.arrivals, self.observer.payloads
        charged = {report_id for ids in disk.charges.values() for report_id in ids}
        assert disk.charges.keys() == {f"d{n}" for n in range(self.job.again)}
        assert len(charged) == self.job.again, "a device was charged twice"
        assert set(disk.spent.values()) == {"1/1"}
        assert disk.waiting == []
        assert arrivals.keys() == charged, "charged and never sent, or sent and not charged"
        assert {len(variants) for variants in payloads.values()} == {1}, "a report was sent with other bytes"
        async with asyncio.timeout(60):  # a file has no event
            while counted(self.store) + sum(refused(self.store).values()) < arrivals.total():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert counted(self.store) == len(charged)
        assert refused(self.store).keys() <= {"duplicate"}


@asynccontextmanager
async def matrix(mosquitto: Mosquitto, directory: Path, planted: str = "") -> AsyncIterator[Matrix]:
    state = directory / "state"
    job = Job(str(state), mosquitto.url, again=0, fresh=_DEVICES, planted=planted)
    async with (
        aggregating(mosquitto, directory / "store.sqlite3", tasks=(decode_task(HEIGHTS),)),
        observing(mosquitto) as observer,
        gateways() as lives,
    ):
        yield Matrix(lives, observer, directory, job)


async def kill_at(broken: Matrix, step: str, kills: int, moments: random.Random) -> None:
    """Kill `kills` lives at `step`, a quarter of them while they make good what their predecessors left."""
    often = 1 if step.startswith(_ONCE_A_LIFE) else _DEVICES
    for _ in range(kills):
        early = broken.job.again > 0 and moments.random() < 0.25
        end, _ = await broken.live(step=step, occurrence=moments.randint(1, often), early=early)
        assert end == -9, "it never came to this step"
        for payload in broken.disk().waiting:
            broken.observer.compare(payload)


@pytest.mark.medium
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=soak)])
@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_any_step_a_report_is_charged_once_and_counted_once(
    mosquitto: Mosquitto, tmp_path: Path, step: str, kills: int
) -> None:
    moments = random.Random(f"{_SEED} {step}")  # noqa: S311 - repeatable on purpose
    async with matrix(mosquitto, tmp_path) as broken:
        await kill_at(broken, step, kills, moments)
        await broken.finish()
        if step in ("publish-after", "acknowledge-before", "acknowledge-after", "delete-before"):
            assert broken.observer.again > 0, "the kills came too early or too late to prove anything"


@pytest.mark.medium
@pytest.mark.parametrize("kills", [20, pytest.param(500, marks=soak)])
async def test_killed_at_any_microsecond_a_report_is_charged_and_counted_once(
    mosquitto: Mosquitto, tmp_path: Path, kills: int
) -> None:
    moments = random.Random(_SEED)  # noqa: S311 - repeatable on purpose
    async with matrix(mosquitto, tmp_path) as broken:
        longest = 0.01  # at first it dies while it makes its state
        for _ in range(kills):
            end, seconds = await broken.live(after=moments.uniform(0, longest))
            longest = seconds if end == 0 else 1.3 * longest
        await broken.finish()
        assert broken.kills >= kills / 4


@pytest.mark.large
@pytest.mark.parametrize(
    ("planted", "step", "words"),
    [
        ("split", "charge-after", "charged and never sent"),
        ("redraw", "publish-after", "with other bytes"),
        ("forget", "publish-before", "charged and never sent"),
    ],
)
async def test_the_twins_of_the_client_that_are_built_wrong_fail(
    mosquitto: Mosquitto, tmp_path: Path, planted: str, step: str, words: str
) -> None:
    async with matrix(mosquitto, tmp_path, planted) as broken:
        await kill_at(broken, step, 4, random.Random(_SEED))  # noqa: S311 - repeatable on purpose
        with pytest.raises(AssertionError, match=words):
            await broken.finish()
