"""Answers from a source: asked once in a round, only when the answer is admitted, and never quoted."""

import asyncio
import logging
import math
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest
from heights import make_heights
from scripted_broker import Fate, ScriptedBroker
from virtual_time import eventually

from hush import Task
from hush_client import Client, Gateway, Policy, Receipt, Undelivered
from hush_common.topics import ALL_TASKS, Acknowledgement, task_topic
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.virtual_time

SOON, LATER = 0.1, 0.7  # seconds that a source has
START = datetime(2026, 1, 1, tzinfo=UTC)
DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "epsilon": "3"}


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Source:
    """Gives values one after the other, the last one for ever; an exception is raised."""

    def __init__(self, *values: object) -> None:
        self._values = list(values)
        self.calls = 0
        self.threads: set[str] = set()

    def __call__(self) -> object:
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        value = self._values.pop(0) if len(self._values) > 1 else self._values[0]
        if isinstance(value, Exception):
            raise value
        return value

    async def read(self) -> object:
        """The same without a thread."""
        return self()


def gateway(broker: ScriptedBroker, state: Path, clock: Clock, *, policy: Policy | None = None) -> Gateway:
    return Gateway(broker, name="g", state=state, spread=0, clock=clock, policy=policy)


async def test_a_source_is_asked_once_in_each_round(tmp_path: Path, clock: Clock) -> None:
    def fail(_: Receipt) -> NoReturn:
        raise RuntimeError("a mistake of the application")

    broker, source = ScriptedBroker(retained={task_topic("heights"): make_heights(**DAILY)}), Source(172.0)
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", source.read, source_timeout=SOON, on_receipt=fail)
        for day in range(3):
            clock.time = START + timedelta(days=day, hours=1)
            await eventually(lambda expected=day + 1: len(broker.arrived) == expected)
        clock.time += timedelta(days=30)
        await g.report("another", "heights", 172.0)  # the last round is open still, and settled for the first device
        await eventually(lambda: len(broker.arrived) == 4)
        assert (await g.ledger("d")).spent == 3
    rounds = [frame.reports[0].round for _, payload in broker.arrived if isinstance(frame := decode(payload), Frame)]
    assert rounds == [0, 1, 2, 2]
    assert source.calls == 3


async def test_after_a_restart_a_round_that_is_answered_asks_nobody(tmp_path: Path, clock: Clock) -> None:
    broker, source, other = ScriptedBroker(), Source(172.0), Source(172.0)
    async with gateway(broker, tmp_path, clock) as g:
        assert (await g.report("d", "heights", 172.0)).status == "sent"
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", source.read, source_timeout=SOON)
        g.answer("e", "heights", other.read, source_timeout=SOON)
        await eventually(lambda: other.calls)
        await eventually(lambda: len(broker.arrived) == 2)
    assert source.calls == 0


@pytest.mark.medium
@pytest.mark.virtual_time(False)
async def test_a_blocking_source_runs_in_a_thread_and_an_async_one_in_the_loop(tmp_path: Path, clock: Clock) -> None:
    async def read() -> float:
        threads.add(threading.current_thread().name)
        return 172.0

    threads: set[str] = set()
    broker, source = ScriptedBroker(), Source(172.0)
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("a", "heights", source, source_timeout=LATER)
        g.answer("b", "heights", read, source_timeout=LATER)
        g.answer("c", "heights", lambda: read(), source_timeout=LATER)  # noqa: PLW0108 - a call that gives a coroutine
        await eventually(lambda: len(broker.arrived) == 3)
    here = threading.current_thread().name
    assert here not in source.threads
    assert threads == {here}


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({"epsilon": "5"}, None),
        ({}, Policy(lifetime=Fraction(1, 2))),
        ({"closes": "2025-12-31T00:00:00Z"}, None),
        ({"opens": "2026-01-02T00:00:00Z"}, None),
    ],
)
async def test_a_source_is_not_asked_for_what_would_be_refused(
    tmp_path: Path, clock: Clock, changes: dict[str, object], policy: Policy | None
) -> None:
    allowed = make_heights(id="allowed", purpose="other", epsilon="0.5")
    broker = ScriptedBroker(retained={task_topic("heights"): make_heights(**changes), task_topic("allowed"): allowed})
    source, witness = Source(172.0), Source(172.0)
    async with gateway(broker, tmp_path, clock, policy=policy) as g:
        g.answer("d", "heights", source.read, source_timeout=SOON)
        await g.task("heights")
        g.answer("d", "allowed", witness.read, source_timeout=SOON)
        await eventually(lambda: broker.arrived)
        for _ in range(3):  # each is a transaction: time for the other one to be asked, were it to be
            await g.ledger("d")
    assert (source.calls, witness.calls) == (0, 1)


async def test_a_device_that_stops_answering_charges_nothing_until_it_restarts(tmp_path: Path, clock: Clock) -> None:
    broker, source, other = (
        ScriptedBroker(retained={task_topic("heights"): make_heights(**DAILY)}),
        Source(1),
        Source(2),
    )
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", source.read, source_timeout=SOON)
        g.answer("e", "heights", other.read, source_timeout=SOON)
        await eventually(lambda: len(broker.arrived) == 2)
        g.stop_answering("d", "heights")
        with pytest.raises(ValueError, match="heights"):
            g.stop_answering("d", "heights")
        clock.time += timedelta(days=1)
        await eventually(lambda: len(broker.arrived) == 3)
        assert [(await g.ledger(device)).spent for device in ("d", "e")] == [1, 2]
        assert await g.devices() == ("d", "e")
        g.answer("d", "heights", source.read, source_timeout=SOON)
        await eventually(lambda: len(broker.arrived) == 4)
        assert [(await g.ledger(device)).spent for device in ("d", "e")] == [2, 2]


@pytest.mark.parametrize(
    ("task_id", "changes", "parts"),
    [
        ("heigths", {}, ["no task 'heigths'", "check the name", task_topic("heigths")]),
        ("secret", {}, [task_topic("secret"), "forbidden"]),
        ("heights", {"opens": "2026-01-02T00:00:00Z"}, ["opens on 2026-01-02", "shows 2026-01-01 00:00:00"]),
        ("heights", {"closes": "2025-12-31T00:00:00Z"}, ["closed on 2025-12-31", "shows 2026-01-01 00:00:00"]),
    ],
)
async def test_a_task_that_waits_for_long_is_logged_once_with_the_reason(
    caplog: pytest.LogCaptureFixture, task_id: str, changes: dict[str, object], parts: list[str], tmp_path: Path
) -> None:
    tasks = {task_topic("heights"): make_heights(**changes), task_topic("other"): make_heights(id="other")}
    broker = ScriptedBroker(retained=tasks, forbidden=frozenset({task_topic("secret")}))
    async with gateway(broker, tmp_path, Clock()) as g:
        first = asyncio.create_task(g.task(task_id))
        await g.task("other")
        first.cancel()
        for device in ("d", "e"):
            g.answer(device, task_id, Source(172.0).read, source_timeout=SOON)
        await eventually(lambda: "not answered" in caplog.text)
        g.answer("f", "late", Source(172.0).read, source_timeout=SOON)
        await eventually(lambda: "late: not answered" in caplog.text)
    (line,) = [one for one in caplog.records if one.getMessage().startswith(f"{task_id}: not answered")]
    assert line.levelno == logging.WARNING
    assert all(part in line.getMessage() for part in parts), line.getMessage()


async def test_a_full_outbox_asks_later(tmp_path: Path, clock: Clock) -> None:
    broker, source = ScriptedBroker(), Source(172.0)
    broker.faults.append(Fate.NEVER)
    async with Gateway(broker, name="g", state=tmp_path, spread=0, capacity=1, clock=clock) as g:
        await g.task("heights")
        assert (await g.report("first", "heights", 172.0, timeout=0)).status == "queued"
        g.answer("d", "heights", source.read, source_timeout=SOON)
        await eventually(lambda: broker.attempts)
        assert (await g.report("second", "heights", 172.0, timeout=0)).reason == "outbox_full"
        assert source.calls == 0
        broker.drop()
        await eventually(lambda: len(broker.arrived) == 3)  # the first one twice: it was never acknowledged
    assert source.calls == 1


async def test_a_source_without_a_value_is_called_again(tmp_path: Path, clock: Clock) -> None:
    broker, receipts = ScriptedBroker(), list[Receipt]()
    source = Source(ValueError("172.25 is what I measured"), None, "172.25", float("nan"), 172.25)
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", source.read, source_timeout=10, on_receipt=receipts.append)
        await eventually(lambda: broker.arrived)
        assert (await g.ledger("d")).spent == 1
    assert source.calls == 5
    assert [receipt.value for receipt in receipts] == ["used"]


class Reading(float):
    """A number of a type of its own."""


class UnknownError(Exception):
    """An exception of a program, whose text has the value."""


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (lambda: 172.0, ""),
        (lambda: 1e300, ""),
        (lambda: None, ""),
        (lambda: math.nan, ""),
        (lambda: Reading(172.0), ""),
        (lambda: "172.0\n", "type str, not a number"),
        (lambda: [172.0], "type list, not a number"),
        (lambda: datetime(2026, 1, 1, tzinfo=UTC), "type datetime, not a number"),
        (lambda: 1 / 0, "raised ZeroDivisionError"),
        (lambda: undefined, "raised NameError"),  # type: ignore[name-defined]  # noqa: F821 - on purpose
        (Source(UnknownError("172.0")), "raised UnknownError"),
        (None, "source_timeout"),
        (Source("172", 172.0), ""),
        (Source(172.0, None), ""),
    ],
)
async def test_what_is_wrong_with_a_source_is_in_its_receipt_alone(
    source: Any,  # noqa: ANN401 - whatever a program has
    fault: str,
    tmp_path: Path,
    clock: Clock,
) -> None:
    async def read() -> object:
        return source() if source else await asyncio.Event().wait()  # here and not in a thread, which may be late

    receipts: list[Receipt] = []
    seconds = LATER if isinstance(source, Source) else SOON
    async with gateway(ScriptedBroker(), tmp_path, clock) as g:
        g.answer("d", "heights", read, source_timeout=seconds, on_receipt=receipts.append)
        await eventually(lambda: receipts)
    assert receipts[0].status == "queued"
    assert fault in receipts[0].fault
    assert bool(receipts[0].fault) == bool(fault)
    assert "172" not in receipts[0].fault
    assert "fault" not in repr(receipts[0])


async def test_an_absent_source_is_skipped_on_request(tmp_path: Path, clock: Clock) -> None:
    def sensor() -> float | None:
        return 172.0 if power.is_set() else None

    broker, power, broken = ScriptedBroker(), threading.Event(), Source(float("nan"))
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("a", "heights", sensor, source_timeout=SOON, absent="skip")
        g.answer("b", "heights", broken.read, source_timeout=SOON, absent="skip")  # it is there
        await eventually(lambda: len(broker.arrived) == 1)
        assert [(await g.ledger(device)).spent for device in "ab"] == [Fraction(0), Fraction(1)]
        power.set()
        await eventually(lambda: len(broker.arrived) == 2)


async def test_a_source_that_hangs_is_not_asked_again_and_keeps_nobody_waiting(tmp_path: Path, clock: Clock) -> None:
    free, calls = threading.Event(), list[int]()

    def hang() -> float:
        calls.append(1)
        free.wait(600)
        return 172.0

    broker = ScriptedBroker(retained={task_topic("heights"): make_heights(**DAILY)})
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", hang, source_timeout=SOON)
        for day in range(3):
            clock.time = START + timedelta(days=day, hours=1)
            await eventually(lambda expected=day + 1: len(broker.arrived) == expected)
    free.set()
    assert calls == [1]


async def test_on_delivery_hears_of_refused_and_accepted_reports(tmp_path: Path, clock: Clock) -> None:
    def tell(receipt: Receipt) -> NoReturn:
        told.append(receipt)
        raise ValueError("an application's mistake")

    stored, told = list[Receipt](), list[Receipt]()
    broker = ScriptedBroker()
    broker.answers.append(Acknowledgement(0x87, can_refuse=True))
    async with Gateway(broker, name="g", state=tmp_path, spread=0, clock=clock, on_delivery=tell) as g:
        g.answer("d", "heights", Source(172.0).read, source_timeout=SOON, on_receipt=stored.append)
        await eventually(lambda: told)
        assert [one.status for one in (*stored, *told)] == ["queued", "undelivered"]
        assert told[0].reason is Undelivered.FORBIDDEN
        broker.drop()  # it is sent again over the next connection
        await eventually(lambda: len(told) == 2)
        assert (told[1].status, told[1].report_id) == ("sent", stored[0].report_id)
        await g.report_many("heights", {"e": 1, "f": 2})
        assert [one.status for one in told[2:]] == ["sent", "sent"]
        assert (await g.report("e", "heights", 3)).status == "already_answered"
    assert len(told) == 4


async def test_a_task_that_changes_during_the_source_call_is_not_answered(tmp_path: Path, clock: Clock) -> None:
    async def measure() -> float:
        values.append(172.0)
        if len(values) == 1:
            broker.retain(task_topic("heights"), make_heights(epsilon="0.5"))
            await eventually(lambda: g.tasks()["heights"].epsilon != 1)
        return values[-1]

    values: list[float] = []
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path, clock) as g:
        g.answer("d", "heights", measure, source_timeout=LATER)
        await eventually(lambda: values)
        await eventually(lambda: g.tasks()["heights"].epsilon != 1)
        assert (await g.report("d", "heights", 172.0)).reason == "task_changed"
        broker.retain(task_topic("heights"), make_heights())
        await eventually(lambda: broker.arrived)
        assert (await g.ledger("d")).spent == 1
    assert len(values) == 2


async def test_a_budget_spent_during_the_source_call_is_not_spent_twice(tmp_path: Path, clock: Clock) -> None:
    async def measure() -> float:
        asked.append((await g.report("d", "second", 172.0)).status)
        return 172.0

    asked: list[str] = []
    broker = ScriptedBroker()
    broker.retained[task_topic("second")] = make_heights(id="second")
    async with gateway(broker, tmp_path, clock, policy=Policy(lifetime=Fraction(1))) as g:
        g.answer("d", "heights", measure, source_timeout=LATER)
        await eventually(lambda: asked)
        broker.retain(task_topic("heights"), make_heights(epsilon="0.5"))  # wakes it: it would answer again
        await eventually(lambda: g.tasks()["heights"].epsilon != 1)
        g.answer("witness", "heights", Source(172.0).read, source_timeout=LATER)
        await eventually(lambda: len(broker.arrived) == 2)
        assert (await g.ledger("d")).spent == 1
        assert (await g.ledger("witness")).spent == Fraction(1, 2)
    assert asked == ["sent"]


async def test_a_task_that_is_illegal_at_first_is_answered_when_it_is_mended(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, source = ScriptedBroker(retained={task_topic("heights"): b"{}"}), Source(172.0)
    with caplog.at_level(logging.WARNING, "hush_client"):
        async with gateway(broker, tmp_path, clock) as g:
            g.answer("d", "heights", source.read, source_timeout=SOON)
            await eventually(lambda: "cannot be answered" in caplog.text)
            broker.retain(task_topic("heights"), make_heights())
            await eventually(lambda: broker.arrived)
    assert source.calls == 1


async def test_whoever_listens_is_told_of_every_task_once_and_of_every_change(tmp_path: Path) -> None:
    told: list[tuple[str, Fraction]] = []

    def listen(task: Task) -> None:
        told.append((task.id, task.epsilon))
        raise RuntimeError("a mistake of the application")

    broker = ScriptedBroker()
    async with Client("mqtt://h", device="d", state=tmp_path, spread=0, transport=broker) as client:
        await client.task("heights")
        client.on_task(listen)
        assert told == [("heights", Fraction(1))]
        await eventually(lambda: broker.is_subscribed(ALL_TASKS))
        broker.retain(task_topic("heights"), make_heights())  # as a new connection would bring it again
        broker.retain(task_topic("second"), make_heights(id="second"))
        broker.retain(task_topic("illegal"), b"{}")
        broker.retain(task_topic("heights"), make_heights(epsilon="0.5"))
        await eventually(lambda: len(told) >= 3)
        assert told == [("heights", Fraction(1)), ("second", Fraction(1)), ("heights", Fraction(1, 2))]
        assert sorted(client.tasks()) == ["heights", "second"]
        assert (await client.report("second", 172.0)).status == "sent"


async def test_the_ledger_tells_what_was_spent_and_what_it_means(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.retained[task_topic("second")] = make_heights(id="second", epsilon="0.5")
    broker.retained[task_topic("third")] = make_heights(id="third", purpose="health", epsilon="0.5")
    policy = Policy(total=Fraction(5))
    async with Client("mqtt://h", device="d", state=tmp_path, spread=0, transport=broker, policy=policy) as client:
        assert (await client.ledger()).certainty == pytest.approx(0.5, abs=1e-15)
        for name in ("heights", "second", "third"):
            await client.report(name, 172.0)
        statement = await client.ledger()
    assert [(budget.purpose, budget.spent, budget.cap) for budget in statement.budgets] == [
        ("health", Fraction(1, 2), Fraction(4)),
        ("workplaces", Fraction(3, 2), Fraction(4)),
    ]
    assert [charge.task for charge in statement.budgets[1].charges] == ["heights", "second"]
    assert statement.spent == 2
    assert statement.cap == 5
    assert statement.certainty == pytest.approx(0.8808, abs=1e-3)
    assert statement.certainty_text == "88.1 %"
    assert replace(statement, budgets=(replace(statement.budgets[0], spent=Fraction(1)),)).certainty_text == "73.2 %"
