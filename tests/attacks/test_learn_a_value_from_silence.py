"""The attacker writes the tasks, and wants to learn a value from which of them a device is silent about.

Whoever may publish tasks chooses the bounds. Where a device was silent outside of them, 17 tasks of epsilon 0.000001
found a value to four digits, and one id was enough for 69 questions, at a charge of one. Here the same questions go
to the real client over a real broker: the observer, who knows all of its code, moves by no more than the ledger says.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import aiomqtt
from servers import Mosquitto

from hush_client import Client, Policy
from hush_common.codec import Frame, decode
from hush_common.errors import TaskError
from hush_common.mechanisms import Laplace
from hush_common.task import Task
from hush_common.task_file import decode_task
from hush_common.topics import task_topic

EPSILON = "0.000001"
POLICY = Policy(lifetime=Fraction(1, 1000))
TASKS = 25
LOWER, UPPER = 100.0, 250.0
SECRETS = [LOWER + 3 * k for k in range(51)]
"""What the observer holds for possible, each as likely as the others."""


def forged(name: str, lower: float, upper: float, outside: str) -> bytes:
    """A task as an attacker writes it, by hand."""
    domain = {"kind": "number", "lower": lower, "upper": upper, "outside": outside}
    document = {"id": name, "epsilon": EPSILON, "mechanism": "laplace", "rounds": 1, "domain": domain}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@dataclass
class Attacker:
    """Publishes tasks, listens to all reports, and keeps the log-likelihood of each secret."""

    client: aiomqtt.Client
    end: str
    answers: list[int] = field(default_factory=list)
    likely: list[Decimal] = field(default_factory=lambda: [Decimal(0)] * len(SECRETS))

    async def publish(self, payload: bytes) -> None:
        await self.client.publish(task_topic(json.loads(payload)["id"]), payload, qos=1, retain=True)

    async def hear(self, task: Task) -> int:
        """How many reports came since the last time; what their bodies say is taken in."""
        await self.client.publish(self.end, b"", qos=1)
        heard = 0
        async for message in self.client.messages:
            if str(message.topic) == self.end:
                break
            assert isinstance(message.payload, bytes)
            frame = decode(message.payload)
            assert isinstance(frame, Frame)
            assert len(message.payload) == 40
            heard += len(frame.reports)
            self.learn(task, frame)
        self.answers.append(heard)
        return heard

    def learn(self, task: Task, frame: Frame) -> None:
        assert isinstance(task.randomizer, Laplace)
        if frame.digest == task.digest:
            for report in frame.reports:
                for place, secret in enumerate(SECRETS):
                    chance = task.randomizer.probability(report.body, task.domain.index(secret).scalar, digits=30)
                    self.likely[place] += chance.ln()

    @property
    def moved(self) -> Decimal:
        """The largest change of the log-odds of any two secrets."""
        return max(self.likely) - min(self.likely)


@asynccontextmanager
async def attacking(mosquitto: Mosquitto, victim: str) -> AsyncIterator[Attacker]:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        end = f"test/end/{victim}"
        await client.subscribe([(f"hush/v1/reports/+/{victim}", 1), (end, 1)])
        yield Attacker(client, end)


def as_it_would_be(payload: bytes) -> Task:
    """What the attacker makes of its own task, whatever devices do."""
    return decode_task(payload.replace(b'"refuse"', b'"clamp"'))


@dataclass(frozen=True, slots=True)
class Victim:
    """A device with a value, and how the tasks treat what lies outside of their bounds."""

    name: str
    value: object
    outside: str
    directory: Path

    def client(self, mosquitto: Mosquitto) -> Client:
        return Client(mosquitto.url, device=self.name, state=self.directory / self.name, policy=POLICY, spread=0)


def victims(directory: Path) -> list[Victim]:
    """Devices whose values could not differ more."""
    values = enumerate([139.7, 212.3, None, float("inf")])
    return [
        Victim(f"{outside}-{number}", value, outside, directory)
        for number, value in values
        for outside in ("refuse", "clamp")
    ]


async def bisect(mosquitto: Mosquitto, victim: Victim) -> tuple[Attacker, Fraction]:
    """Half the range with each task, by whether it is answered; and what the ledger says of it."""
    low, high = LOWER, UPPER
    async with attacking(mosquitto, victim.name) as attacker, victim.client(mosquitto) as client:
        for number in range(TASKS):
            middle, name = (low + high) / 2, f"{victim.name}-{number}"
            payload = forged(name, low, middle, victim.outside)
            await attacker.publish(payload)
            with suppress(TaskError):
                await client.report(name, victim.value, timeout=10)
            low, high = (low, middle) if await attacker.hear(as_it_would_be(payload)) else (middle, high)
        return attacker, (await client.ledger()).spent


async def scan(mosquitto: Mosquitto, victim: Victim) -> tuple[Attacker, Fraction]:
    """Replace the task of one id again and again, and see under which bounds it is answered."""
    async with attacking(mosquitto, victim.name) as attacker, victim.client(mosquitto) as client:
        client.answer(victim.name, lambda: victim.value, source_timeout=0.05)
        for number in range(TASKS):
            payload = forged(victim.name, UPPER - 6 * (number + 1), UPPER - 6 * number, victim.outside)
            await attacker.publish(payload)
            await asyncio.sleep(0.1 if number else 1)  # the first one is given the time to be answered
            await client.flush()
            await attacker.hear(as_it_would_be(payload))
        return attacker, (await client.ledger()).spent


def assert_learned_no_more_than_was_spent(attacker: Attacker, spent: Fraction) -> None:
    assert attacker.moved <= Decimal(spent.numerator) / Decimal(spent.denominator) * (1 + Decimal("1e-20"))


async def test_to_bisect_a_value_over_many_ids(mosquitto: Mosquitto, tmp_path: Path) -> None:
    asked = victims(tmp_path)
    found = await asyncio.gather(*(bisect(mosquitto, victim) for victim in asked))
    for victim, (attacker, spent) in zip(asked, found, strict=True):
        answers = int(victim.outside == "clamp")
        assert attacker.answers == [answers] * TASKS, "silence does not depend on the value"
        assert spent == answers * TASKS * Fraction(EPSILON)
        assert_learned_no_more_than_was_spent(attacker, spent)


async def test_to_scan_for_a_value_under_one_id(mosquitto: Mosquitto, tmp_path: Path) -> None:
    asked = victims(tmp_path)
    found = await asyncio.gather(*(scan(mosquitto, victim) for victim in asked))
    for victim, (attacker, spent) in zip(asked, found, strict=True):
        answers = int(victim.outside == "clamp")
        assert attacker.answers == [answers] + [0] * (TASKS - 1), "the first task is pinned"
        assert spent == answers * Fraction(EPSILON)
        assert_learned_no_more_than_was_spent(attacker, spent)
