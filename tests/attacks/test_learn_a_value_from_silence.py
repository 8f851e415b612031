"""The attacker writes the tasks, and wants to learn a value from which of them a device is silent about.

Whoever may publish tasks chooses the bounds. Where a device was silent outside of them, 17 tasks of epsilon 0.000001
found a value to four digits, and one id was enough for 69 questions, at a charge of one. Here the same questions go
to the real client, and to `hush report`, over a real broker: the observer, who knows all of their code and weighs an
answer, its bytes and its absence alike, moves by no more than the ledger says. Where the old behaviour is planted, the
same observer finds the value.
"""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import aiomqtt
import pytest
from servers import Mosquitto
from waiting import PATIENCE_S, until

from hush import Task
from hush_client import Client, Policy
from hush_client.privacy.answer import Answer, Question, answer
from hush_common.domain import NumberDomain, ParsedValue
from hush_common.errors import StateError, TaskError
from hush_common.mechanisms import Laplace
from hush_common.rng import ReportRng
from hush_common.task import decode_task
from hush_common.topics import task_topic
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.medium

EPSILON = "0.000001"
POLICY = Policy(lifetime=Fraction(1, 1000))
TASKS = 25
FEW_TASKS = 5
"""From run to run: what is decided is the same code, and each takes a process of its own."""
LOWER, UPPER = 100.0, 250.0
SECRETS = [LOWER + 3 * k for k in range(51)]
"""What the observer holds for possible, each as likely as the others."""

HUSH = Path(sys.executable).with_name("hush")
IMPOSSIBLE = Decimal("-Infinity")

Knowledge = Callable[[Task, float, Sequence[int]], bool]
"""Whether a device with this secret answers a task, after those answers to the tasks before: what its code says."""


def always(_task: Task, _secret: float, _before: Sequence[int]) -> bool:
    return True


def never(_task: Task, _secret: float, _before: Sequence[int]) -> bool:
    return False


def once(_task: Task, _secret: float, before: Sequence[int]) -> bool:
    return not any(before)


def inside(task: Task, secret: float, _before: Sequence[int]) -> bool:
    assert isinstance(task.domain, NumberDomain)
    return task.domain.lower <= secret <= task.domain.upper


def inside_once(task: Task, secret: float, before: Sequence[int]) -> bool:
    return inside(task, secret, before) and not any(before)


def forged(name: str, lower: float, upper: float, outside: str) -> bytes:
    """A task as an attacker writes it, by hand."""
    domain = {"kind": "number", "lower": lower, "upper": upper, "outside": outside}
    document = {"id": name, "epsilon": EPSILON, "mechanism": "laplace", "rounds": 1, "domain": domain}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def as_it_would_be(payload: bytes) -> Task:
    """What the attacker makes of its own task, whatever devices do."""
    return decode_task(payload.replace(b'"refuse"', b'"clamp"'))


@dataclass
class Attacker:
    """Publishes tasks, listens to all reports, and keeps the log-likelihood of each secret."""

    client: aiomqtt.Client
    end: str
    knows: Knowledge
    answers: list[int] = field(default_factory=list)
    likely: list[Decimal] = field(default_factory=lambda: [Decimal(0)] * len(SECRETS))

    async def publish(self, payload: bytes) -> None:
        await self.client.publish(task_topic(json.loads(payload)["id"]), payload, qos=1, retain=True)

    async def hear(self, task: Task) -> int:
        """How many reports came since the last time; that, and what their bodies say, is taken in."""
        await self.client.publish(self.end, b"", qos=1)
        heard = 0
        async for message in self.client.messages:
            if str(message.topic) == self.end:
                break
            assert isinstance(message.payload, bytes)
            frame = decode(message.payload)
            assert isinstance(frame, Frame)
            assert len(message.payload) == 48
            heard += len(frame.reports)
            self.learn(task, frame)
        for place, secret in enumerate(SECRETS):
            if self.knows(task, secret, self.answers) != (heard > 0):
                self.likely[place] = IMPOSSIBLE
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
    def suspects(self) -> list[float]:
        """The secrets that what came, and what did not, leaves possible."""
        return [secret for secret, likely in zip(SECRETS, self.likely, strict=True) if likely > IMPOSSIBLE]

    @property
    def moved(self) -> Decimal:
        """The largest change of the log-odds of any two secrets."""
        assert self.suspects, "the attacker knows the device"
        return max(self.likely) - min(self.likely)


@asynccontextmanager
async def attacking(mosquitto: Mosquitto, victim: str, knows: Knowledge) -> AsyncIterator[Attacker]:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        end = f"test/end/{victim}"
        await client.subscribe([(f"hush/v1/reports/+/{victim}", 1), (end, 1)])
        yield Attacker(client, end, knows)


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
    values = enumerate([139.0, 211.0, None, float("inf")])
    return [
        Victim(f"{outside}-{number}", value, outside, directory)
        for number, value in values
        for outside in ("refuse", "clamp")
    ]


async def bisect(mosquitto: Mosquitto, victim: Victim, knows: Knowledge) -> tuple[Attacker, Fraction]:
    """Half the range with each task, by whether it is answered; and what the ledger says of it."""
    low, high = LOWER, UPPER
    async with attacking(mosquitto, victim.name, knows) as attacker, victim.client(mosquitto) as client:
        for number in range(TASKS):
            middle, name = (low + high) / 2, f"{victim.name}-{number}"
            payload = forged(name, low, middle, victim.outside)
            await attacker.publish(payload)
            with suppress(TaskError, StateError):
                await client.report(name, victim.value, timeout=PATIENCE_S)
            low, high = (low, middle) if await attacker.hear(as_it_would_be(payload)) else (middle, high)
        return attacker, (await client.ledger()).spent


async def scan(
    mosquitto: Mosquitto, victim: Victim, knows: Knowledge, asked: Callable[[], int] | None = None
) -> tuple[Attacker, Fraction]:
    """Replace the task of one id again and again, and see under which bounds it is answered.

    Args:
        asked: how often the device has come to an answer or a refusal of one; None where it answers the first or none.
    """
    async with attacking(mosquitto, victim.name, knows) as attacker, victim.client(mosquitto) as client:
        client.answer(victim.name, lambda: victim.value, source_timeout=0.05)
        for number in range(TASKS):
            payload = forged(victim.name, UPPER - 6 * (number + 1), UPPER - 6 * number, victim.outside)
            await attacker.publish(payload)
            if asked is not None and not any(attacker.answers):
                await until(lambda: asked() > number)  # noqa: B023 - is awaited here
            elif not number and knows is not never:
                async with asyncio.timeout(PATIENCE_S):
                    while not (await client.ledger()).spent:  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(0.1)
            await client.flush()
            await attacker.hear(as_it_would_be(payload))
        return attacker, (await client.ledger()).spent


def assert_learned_no_more_than_was_spent(attacker: Attacker, spent: Fraction) -> None:
    assert attacker.moved <= Decimal(spent.numerator) / Decimal(spent.denominator) * (1 + Decimal("1e-20"))


@pytest.mark.large
async def test_to_bisect_a_value_over_many_ids(mosquitto: Mosquitto, tmp_path: Path) -> None:
    asked = victims(tmp_path)
    knowledge = {"refuse": never, "clamp": always}
    found = await asyncio.gather(*(bisect(mosquitto, victim, knowledge[victim.outside]) for victim in asked))
    for victim, (attacker, spent) in zip(asked, found, strict=True):
        answers = int(victim.outside == "clamp")
        assert attacker.answers == [answers] * TASKS, "for all values"
        assert spent == answers * TASKS * Fraction(EPSILON)
        assert_learned_no_more_than_was_spent(attacker, spent)


async def test_to_scan_for_a_value_under_one_id(mosquitto: Mosquitto, tmp_path: Path) -> None:
    asked = victims(tmp_path)
    knowledge = {"refuse": never, "clamp": once}
    found = await asyncio.gather(*(scan(mosquitto, victim, knowledge[victim.outside]) for victim in asked))
    for victim, (attacker, spent) in zip(asked, found, strict=True):
        answers = int(victim.outside == "clamp")
        assert attacker.answers == [answers] + [0] * (TASKS - 1), "the first task is pinned"
        assert spent == answers * Fraction(EPSILON)
        assert_learned_no_more_than_was_spent(attacker, spent)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The client as it was: silent about a value outside, and bound by no task before one is charged.

    Returns:
        What it came to, task by task.
    """
    outcomes: list[str] = []

    def planted(
        connection: sqlite3.Connection, question: Question, values: Mapping[str, ParsedValue], rng: ReportRng
    ) -> dict[str, Answer]:
        outcomes.append("" if all(reading.coercion == "used" for reading in values.values()) else "outside")
        if outcomes[-1]:
            raise StateError("planted: the value is outside")
        return answer(connection, question, values, rng)

    monkeypatch.setattr("hush_client.gateway.answer", planted)
    monkeypatch.setattr("hush_client.privacy.answer.ledger.pin", lambda *_: None)
    return outcomes


@pytest.mark.usefixtures("refusing")
async def test_the_same_bisection_finds_the_value_where_silence_tells(mosquitto: Mosquitto, tmp_path: Path) -> None:
    value = 139.0
    attacker, spent = await bisect(mosquitto, Victim("old", value, "clamp", tmp_path), inside)
    assert attacker.suspects == [value]
    assert attacker.moved == -IMPOSSIBLE
    assert spent <= TASKS * Fraction(EPSILON)


async def test_the_same_scan_finds_the_value_where_silence_tells(
    mosquitto: Mosquitto, tmp_path: Path, refusing: list[str]
) -> None:
    value = 211.0
    victim = Victim("old", value, "clamp", tmp_path)
    attacker, spent = await scan(mosquitto, victim, inside_once, lambda: len(refusing))
    assert value in attacker.suspects
    assert len(attacker.suspects) <= 2
    assert attacker.moved == -IMPOSSIBLE
    assert spent == Fraction(EPSILON)


async def hush(mosquitto: Mosquitto, victim: Victim, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command ends with and says, with the value on standard input."""
    return await asyncio.to_thread(
        subprocess.run,
        [str(HUSH), *arguments, "--state", str(victim.directory / victim.name)],
        input=f"{victim.value}\n",
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HUSH_BROKER": mosquitto.url},
        timeout=240,
    )


async def command_by_command(
    mosquitto: Mosquitto, victim: Victim, knows: Knowledge, *, one_id: bool
) -> tuple[Attacker, list[tuple[int, str]]]:
    """The same questions to `hush report`: one run for each, and what each run ended with."""
    low, high, ends = LOWER, UPPER, []
    async with attacking(mosquitto, victim.name, knows) as attacker:
        for number in range(FEW_TASKS):
            name = victim.name if one_id else f"{victim.name}-{number}"
            bounds = (UPPER - 6 * (number + 1), UPPER - 6 * number) if one_id else (low, (low + high) / 2)
            payload = forged(name, *bounds, victim.outside)
            await attacker.publish(payload)
            done = await hush(mosquitto, victim, "report", name, "-", "--device", victim.name, "--spread", "0")
            ends.append((done.returncode, f"{done.stdout}{done.stderr}".replace(name, "TASK")))
            middle = (low + high) / 2
            low, high = (low, middle) if await attacker.hear(as_it_would_be(payload)) else (middle, high)
    return attacker, ends


@pytest.mark.large
@pytest.mark.parametrize(("one_id", "knows"), [(False, always), (True, once)])
async def test_to_ask_hush_report_from_run_to_run(
    mosquitto: Mosquitto, tmp_path: Path, knows: Knowledge, *, one_id: bool
) -> None:
    asked = [Victim(f"v{number}", value, "clamp", tmp_path) for number, value in enumerate([211.0, "none"])]
    found = await asyncio.gather(*(command_by_command(mosquitto, victim, knows, one_id=one_id) for victim in asked))
    for victim, (attacker, ends) in zip(asked, found, strict=True):
        statement = json.loads((await hush(mosquitto, victim, "ledger", "--json")).stdout)
        spent = sum((Fraction(account["spent"]) for account in statement["accounts"]), Fraction(0))
        assert attacker.answers == ([1] + [0] * (FEW_TASKS - 1) if one_id else [1] * FEW_TASKS)
        assert ends == found[0][1], "neither what it ends with nor what it says tells of the value"
        assert_learned_no_more_than_was_spent(attacker, spent)
