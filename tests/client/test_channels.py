"""What else could tell of a value: the moment, the log, the ledger, a lock, the disk, another device, the process.

Sources are watched in virtual time: whatever one does, all that can be seen from outside is the same.
"""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn

import pytest
from answers import RecordingRng, answer_one
from commands import run as hush
from device_state import in_memory, rows
from heights import make_heights
from scripted_broker import ScriptedBroker
from virtual_time import VirtualLoop, eventually, in_virtual_time
from waiting import until

from hush_client import Gateway, Policy, Receipt
from hush_client.gateway import SourceWorker
from hush_client.privacy.answer import Question
from hush_client.state import ledger
from hush_common.task import decode_task
from hush_common.topics import task_topic

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS, DELAY = 10.0, 500
SECRET = 172.34567
Source = Callable[[], Awaitable[object]]


async def at_once() -> object:
    return SECRET


async def late() -> object:
    await asyncio.sleep(7)
    return SECRET


async def never() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def nothing() -> None:
    return None


async def beyond() -> float:
    return 1e300


async def text() -> str:
    return str(SECRET)


async def failing() -> NoReturn:
    raise ValueError(SECRET)


async def ending() -> NoReturn:
    raise SystemExit(SECRET)


async def cancelled() -> NoReturn:
    raise asyncio.CancelledError


async def deaf() -> float:
    """Goes on when it is told to stop."""
    for _ in range(3):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue
    return SECRET


SOURCES = [at_once, late, never, nothing, beyond, text, failing, ending, cancelled, deaf]


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


def watched(source: Source, directory: Path, **options: Any) -> dict[str, object]:  # noqa: ANN401 - of `answer`
    """One round of one source, and all that anybody can see of it."""
    loop, lines, broker = VirtualLoop(), Lines(), ScriptedBroker()
    moments: list[float] = []
    broker.on_publish = lambda: moments.append(round(loop.time(), 2))

    async def live() -> dict[str, object]:
        clock = lambda: START + timedelta(seconds=loop.time())  # noqa: E731 - of this loop
        async with Gateway(broker, name="g", state=directory, spread=1, clock=clock) as gateway:
            gateway.answer("d", "heights", source, source_timeout=SECONDS, **options)
            await asyncio.sleep(SECONDS - 1)
            early = everything(directory)
            await asyncio.sleep(120)
            return {"early": early, "state": everything(directory)}

    logger = logging.getLogger()
    logger.addHandler(lines)
    before, logger.level = logger.level, logging.DEBUG
    try:
        seen = loop.run_until_complete(live())
    finally:
        logger.removeHandler(lines)
        logger.level = before
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(300))
        loop.close()
    sizes = [(topic, len(payload)) for topic, payload in broker.attempts]
    return seen | {"fold": moments, "sizes": sizes, "log": lines.lines}


def everything(directory: Path) -> list[object]:
    """Every row of the state but the random ids, and the sizes of what is stored."""
    tables = [
        "SELECT device, task, round, digest, purpose, mechanism, epsilon, charged_at, kind FROM charge",
        "SELECT * FROM account",
        "SELECT * FROM refusal",
        "SELECT * FROM pin",
        "SELECT topic, length(payload), not_before, delay FROM outbox",
    ]
    return [rows(directory, table) for table in tables]


@pytest.fixture(autouse=True)
def a_wrong_type_is_logged_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceWorker, "has_logged_type", True)


@pytest.fixture(autouse=True)
def the_same_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_client.gateway.draw_delay", lambda *_: DELAY)


@pytest.mark.medium
def test_a_wrong_type_is_logged_once_in_a_process_and_changes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = watched(at_once, tmp_path / "first")
    monkeypatch.setattr(SourceWorker, "has_logged_type", False)
    for source in (nothing, failing, late, beyond):
        assert watched(source, tmp_path / source.__name__) == first
    told, again = watched(text, tmp_path / "told"), watched(text, tmp_path / "again")
    logged, usual = told.pop("log"), first["log"]  # a test before this one may have changed what is logged
    assert isinstance(logged, list)
    assert isinstance(usual, list)
    (line,) = [one for one in logged if one not in usual]
    assert "heights" in line
    assert "type str, not a number" in line
    assert str(SECRET) not in line
    assert (told | {"log": usual}, again) == (first, first)


@pytest.mark.medium
def test_whatever_a_source_does_everything_that_can_be_seen_is_the_same(tmp_path: Path) -> None:
    seen = {source.__name__: watched(source, tmp_path / source.__name__) for source in SOURCES}
    first = seen["at_once"]
    assert first["fold"] == [SECONDS + DELAY / 1000]
    assert first["early"] != first["state"], "nothing is stored before the time of the source is over"
    for name, one in seen.items():
        assert one == first, name
    assert str(SECRET) not in str(seen)


def test_a_source_without_a_value_is_called_every_second(tmp_path: Path) -> None:
    async def shy() -> None:
        asked.append(asyncio.get_running_loop().time())

    asked: list[float] = []
    watched(shy, tmp_path)
    assert [round(moment) for moment in asked] == list(range(11))


def tell(receipt: Receipt) -> None:
    """Log what became of the value."""
    logging.getLogger("hush_client").info("%s", receipt.value)


@pytest.mark.parametrize("planted", [{"absent": "skip"}, {"on_receipt": tell}], ids=["skips", "logs"])
def test_an_answer_that_depends_on_its_source_is_found(planted: dict[str, Any], tmp_path: Path) -> None:
    seen = [watched(source, tmp_path / source.__name__, **planted) for source in (at_once, late, nothing)]
    assert not seen[0] == seen[1] == seen[2]


class Slow:
    """A real number that waits for a sign before it says which, and remembers who asked."""

    def __init__(self) -> None:
        self.sign, self.asked = threading.Event(), list[str]()

    def __float__(self) -> float:
        self.asked.append(threading.current_thread().name)
        self.sign.wait(60)
        return SECRET


Real.register(Slow)


@pytest.mark.medium
async def test_a_value_whose_methods_take_their_time_holds_up_nobody_else(tmp_path: Path) -> None:
    slow = Slow()
    async with opened(ScriptedBroker(), tmp_path) as gateway:
        waiting = asyncio.create_task(gateway.report("slow", "heights", slow))
        await until(lambda: slow.asked)
        assert (await gateway.report("other", "heights", SECRET)).status == "sent"
        slow.sign.set()
        receipt = await waiting
    assert (receipt.status, receipt.value) == ("sent", "used")
    assert slow.asked == ["hush-aside"], "it is read once, and neither in the loop nor in a transaction"


VALUES: list[object] = [SECRET, 120.0, 1e300, float("-inf"), None, float("nan"), 10**500]


def stored(
    value: object, *, capacity: int | None = None, policy: Policy | None = None, repeated: bool = False
) -> object:
    """Forty answers, and what is said and kept of them: rows, their sizes, and the pages of the file."""
    daily = {"rounds": 40, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "epsilon": "1"}
    again: dict[str, object] = {"repeat": "sticky", "levels": 1} if repeated else {}
    task = decode_task(make_heights(**daily, **again))
    with in_memory() as connection:
        said = []
        for day in range(40):
            limits = policy or Policy(sticky=True)
            question = Question(task, "topic", limits, START + timedelta(days=day), capacity=capacity)
            receipt, sequence = answer_one(connection, question, task.domain.read(value), RecordingRng())
            said.append((receipt.status, receipt.reason, receipt.epsilon, receipt.spent, sequence))
        query = "SELECT sum(length(payload)), count(*), max(sequence) FROM outbox"
        pages = connection.execute("PRAGMA page_count").fetchone()
        kept = [connection.execute(query).fetchall(), ledger.refusals(connection), ledger.accounts(connection)]
        return said, kept, pages


@pytest.mark.parametrize("repeated", [False, True])
def test_what_an_answer_takes_of_the_disk_is_the_same_for_every_value(repeated: bool) -> None:
    first, *others = [stored(value, repeated=repeated) for value in VALUES]
    assert all(other == first for other in others)


def test_a_full_outbox_and_a_spent_budget_refuse_every_value_alike() -> None:
    for limits in ({"capacity": 3}, {"policy": Policy(lifetime=Fraction(1, 10))}):
        first, *others = [stored(value, **limits) for value in VALUES]
        assert "refused" in str(first)
        assert all(other == first for other in others)


def opened(broker: ScriptedBroker, state: Path) -> Gateway:
    return Gateway(broker, name="g", state=state, spread=0)


@pytest.mark.medium
@pytest.mark.parametrize("error", [SystemExit(SECRET), KeyboardInterrupt(SECRET), GeneratorExit(), ValueError(SECRET)])
async def test_a_source_that_ends_its_thread_is_answered_for_in_silence(
    tmp_path: Path, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> NoReturn:
        raise error

    broker = ScriptedBroker()
    async with opened(broker, tmp_path) as gateway:
        gateway.answer("d", "heights", fail, source_timeout=0.05)
        await until(lambda: broker.arrived)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.medium
@pytest.mark.filterwarnings("error")
async def test_an_awaitable_that_comes_too_late_leaves_no_trace(tmp_path: Path) -> None:
    def aside() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "hush-aside"}

    in_time, given, before = threading.Event(), list[Awaitable[object]](), aside()

    def give() -> Awaitable[object]:
        in_time.wait(60)
        given.append(at_once())
        return given[0]

    broker = ScriptedBroker()
    async with opened(broker, tmp_path) as gateway:
        gateway.answer("d", "heights", give, source_timeout=0.05)
        await until(lambda: broker.arrived)
        in_time.set()
        await until(lambda: given)
        given.clear()
        await until(lambda: aside() <= before)
        gc.collect()  # where Python would say that nobody has awaited it


HANGING = """
import asyncio, sys, threading
sys.path.insert(0, sys.argv[1])
from scripted_broker import ScriptedBroker
from hush_client import Client

async def main():
    broker = ScriptedBroker()
    async with Client("mqtt://h", device="d", state=sys.argv[2], spread=0, transport=broker) as client:
        client.answer("heights", threading.Event().wait, source_timeout=0.1)
        while not broker.arrived:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.mark.medium
@pytest.mark.face
def test_a_source_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGING, str(Path(__file__).parents[1]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.medium
@pytest.mark.virtual_time
@pytest.mark.parametrize("value", [SECRET, None])
async def test_a_round_without_a_draw_is_decided_again_after_a_restart(tmp_path: Path, value: float | None) -> None:
    asked: list[int] = []

    async def give() -> float | None:
        asked.append(1)
        return value

    broker = ScriptedBroker()
    async with opened(broker, tmp_path) as gateway:
        gateway.answer("d", "heights", give, source_timeout=3600)
        await eventually(lambda: asked)
        await asyncio.sleep(3000)  # a value that is there changes nothing before the time of its source is over
        assert (await gateway.ledger("d")).spent == 0
    assert broker.arrived == []
    async with opened(broker, tmp_path) as gateway:
        gateway.answer("d", "heights", give, source_timeout=0.05)
        await eventually(lambda: broker.arrived)
        assert (await gateway.ledger("d")).spent == 1
    assert len(broker.arrived) == 1


def test_a_task_is_pinned_when_it_is_admitted(tmp_path: Path) -> None:
    async def wait() -> None:
        asked.append(1)
        await asyncio.Event().wait()

    async def admit() -> None:
        async with opened(broker, tmp_path) as gateway:
            await gateway.task("heights")
            assert (await gateway.report("d", "heights", None)).reason == "epsilon_too_large"
            broker.retain(task_topic("heights"), make_heights())
            gateway.answer("d", "heights", wait, source_timeout=20)
            await eventually(lambda: asked)
            broker.retain(task_topic("heights"), make_heights(epsilon="0.5"))
            await eventually(lambda: gateway.tasks()["heights"].epsilon != 1)
            assert (await gateway.report("d", "heights", 172.0)).reason == "task_changed"
            assert (await gateway.report("e", "heights", 172.0)).status == "sent"  # which has admitted nothing

    async def report() -> None:
        async with opened(broker, tmp_path) as gateway:
            assert (await gateway.report("d", "heights", 172.0)).status == "sent"

    asked: list[int] = []
    broker = ScriptedBroker(retained={task_topic("heights"): make_heights(epsilon="9")})  # more than the device allows
    in_virtual_time(admit())
    assert "d admitted heights" in hush(["ledger", "--state", str(tmp_path)], tmp_path).out
    assert hush(["ledger", "--state", str(tmp_path), "--forget", "heights"], tmp_path).code == 0
    in_virtual_time(report())
