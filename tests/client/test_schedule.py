"""When a report leaves: at a random moment of its own, which survives a restart and which no clock can put off."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from heights import make_heights
from scripted_broker import ScriptedBroker

from hush_client import Gateway
from hush_client.sending.schedule import Schedule, draw_delay
from hush_common.task import decode_task
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.virtual_time

HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """The clock of the wall, which a test sets."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


class Delays:
    """Delays in seconds, one for each report, instead of random ones."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def __call__(self, *_: object) -> int:
        return int(next(self._seconds) * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def gateway(broker: ScriptedBroker, state: Path, clock: Clock) -> Gateway:
    return Gateway(broker, name="g", state=state, clock=clock)


def ids(broker: ScriptedBroker) -> list[str]:
    frames = [decode(payload) for _, payload in broker.arrived]
    return [report.id.hex() for frame in frames if isinstance(frame, Frame) for report in frame.reports]


async def test_reports_leave_in_the_order_of_their_moments_and_none_before(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_client.gateway.draw_delay", Delays(3600, 1200, 2400, 0))
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path, clock) as g:
        await g.task("heights")
        receipts = [await g.report(device, "heights", 172.0, timeout=0) for device in "abc"]
        assert (await g.report("d", "heights", 172.0)).status == "sent"
        assert len(broker.attempts) == 1  # the connection works, and the others keep still
        clock.time += HOUR
        assert await g.flush(timeout=600)
    assert ids(broker)[1:] == [receipts[k].report_id for k in (1, 2, 0)]


async def test_a_moment_survives_a_restart(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_client.gateway.draw_delay", Delays(3600, 1800, 0))
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path, clock) as g:
        await g.task("heights")
        receipts = [await g.report(device, "heights", 172.0, timeout=0) for device in "ab"]
    clock.time += HOUR / 4
    async with gateway(broker, tmp_path, clock) as g:
        assert (await g.report("c", "heights", 172.0)).status == "sent"
        assert len(broker.attempts) == 1
        clock.time += HOUR
        assert await g.flush(timeout=600)
    assert ids(broker)[1:] == [receipts[1].report_id, receipts[0].report_id]


async def test_a_clock_set_back_costs_a_report_its_own_delay_at_most(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_client.gateway.draw_delay", Delays(3600, 0, 0))
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path, clock) as g:
        await g.task("heights")
        await g.report("a", "heights", 172.0, timeout=0)
    clock.time = datetime(1970, 1, 1, tzinfo=UTC)  # a board without a battery for its clock
    for sent in range(2):
        async with gateway(broker, tmp_path, clock) as g:
            assert (await g.report(f"witness {sent}", "heights", 172.0)).status == "sent"
            assert len(broker.attempts) == sent + 1
        clock.time += HOUR / 2
    async with gateway(broker, tmp_path, clock) as g:
        assert await g.flush(timeout=600)


class Scripted:
    """Instead of the system's randomness: the largest integer below, and which bounds were asked for."""

    bounds: list[int]

    def __init__(self) -> None:
        self.bounds = []

    def __call__(self) -> "Scripted":
        return self

    def randbelow(self, n: int) -> int:
        self.bounds.append(n)
        return n - 1


@pytest.fixture
def entropy(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr("hush_client.sending.schedule.SystemRng", scripted)
    return scripted


def test_a_delay_is_uniform_over_the_window(entropy: Scripted) -> None:
    task = decode_task(make_heights())
    assert [draw_delay(spread, task, START) for spread in (0, 0.5, 60)] == [0, 500, 60_000]
    assert entropy.bounds == [501, 60_001]


@pytest.mark.parametrize(("left", "longest"), [(7200, 3_600_000), (10, 5000), (0.001, 0)])
def test_no_delay_takes_more_than_half_of_the_time_until_the_task_closes(
    entropy: Scripted, left: float, longest: int
) -> None:
    task = decode_task(make_heights(closes="2026-01-01T00:00:00Z"))
    assert draw_delay(3600, task, START - timedelta(seconds=left)) == longest
    assert entropy.bounds in ([], [longest + 1])


async def go(clock: Clock, *, loop: float, wall: float) -> None:
    """Let time pass by the clock of the loop, and by that of the wall."""
    await asyncio.sleep(loop)
    clock.time += timedelta(seconds=wall)


async def test_time_goes_on_by_the_clock_that_goes_further(clock: Clock) -> None:
    schedule = Schedule(clock)
    start = schedule.now()
    for loop, wall, passed in (
        (5, 5, 5),
        (5, -3600, 10),  # set back
        (0, 60, 70),  # the machine slept
        (0, -60, 70),
    ):
        await go(clock, loop=loop, wall=wall)
        assert schedule.now() - start == pytest.approx(passed, abs=0.01)


async def test_an_entry_is_taken_once_in_each_connection(clock: Clock) -> None:
    schedule = Schedule(clock)
    for sequence, due in ((1, 3.0), (2, 1.0), (3, 2.0), (4, 9.0)):
        schedule.add(sequence, schedule.now() + due)
    assert schedule.take(10) == []
    await asyncio.sleep(5)
    assert schedule.take(2) == [2, 3]
    assert schedule.take(2) == [1]
    schedule.done(3)
    schedule.restart()
    assert schedule.take(10) == [2, 1]
