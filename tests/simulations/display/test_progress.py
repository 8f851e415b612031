"""Progress of long work: a line every few seconds, the rate and the time left, by a clock of the test."""

import asyncio
import sys
import threading

import numpy as np
import pytest
from waiting import wait_until

import hush
from hush_simulations.display.progress import EVERY_S, progress_lines, show_progress, show_waiting
from hush_simulations.display.time_left import TimeLeft


class Work:
    """Work whose progress is a function of time; tells what is said of the time left, every tenth of a second."""

    def __init__(self, total: int, parts: list[tuple[float, float]]) -> None:
        self.total, self.parts = total, parts
        self.now = 0.0
        self.pace = TimeLeft(lambda: self.now)

    def done(self, time: float) -> int:
        """What is done after some seconds: each part has a length in seconds and a rate."""
        done = 0.0
        for length, rate in self.parts:
            done += rate * min(time, length)
            time -= min(time, length)
        return min(int(done), self.total)

    def said(self) -> list[tuple[float, str]]:
        """Each time at which a time left was said, and what."""
        found = []
        self.pace.add(0)
        for tenth in range(1, 100_000):
            self.now = tenth / 10
            done = self.done(self.now)
            self.pace.add(done)
            if left := self.pace.left(self.total - done):
                found.append((self.now, left))
            if done == self.total:
                break
        return found


def seconds_of(left: str) -> int:
    units = {"h": 3600, "min": 60, "s": 1}
    words = left.removesuffix(" left").split()
    return sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    "parts",
    [
        [(3.0, 0.0), (100.0, 500.0)],
        [(1.3, 0.0), (1.5, 60.0), (100.0, 500.0)],  # as a run over MQTT begins
        [(9.0, 0.0), (1000.0, 20.0)],
        [(5.0, 800.0), (100.0, 250.0)],  # it becomes slower
    ],
)
def test_the_time_left_is_nearly_right_from_the_start(parts: list[tuple[float, float]]) -> None:
    work = Work(5_000, parts)
    said = work.said()
    end = work.now
    assert said
    assert said[0][0] < 0.6 * end  # while it is of use
    for now, left in said:
        actual = end - now
        if now > sum(length for length, _ in parts[:-1]) + 3:  # the rate is that of the last three seconds
            assert actual / 2 - 1 <= seconds_of(left) <= 2 * actual + 10, (now, left)


@pytest.mark.parametrize(("missing", "left"), [(59, "59 s left"), (172, "2 min 50 s left"), (5_000, "1 h 23 min left")])
def test_a_long_time_is_rounded(missing: int, left: str) -> None:
    now = 0.0
    pace = TimeLeft(lambda: now)
    for now in range(0, 2_000, 10):
        pace.add(now)
    assert pace.left(missing) == left


def test_a_line_of_progress_comes_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    tick = progress_lines("reports", 200_000, lambda: now)
    for second in range(18):
        now = 100.0 + second
        for _ in range(100):
            tick(1_000 * second)
    out, err = capsys.readouterr()
    assert (EVERY_S, out) == (5, "")
    assert [line.split(" of ")[0] for line in err.splitlines()] == ["hush: 5 000", "hush: 10 000", "hush: 15 000"]
    assert "3 min 10 s" in err


def test_in_a_pipe_a_short_run_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with show_progress(10) as (progress, look):
        assert progress is not None
        progress(10)
    with show_waiting("playing", every_s=60):
        pass
    assert look is None
    assert capsys.readouterr() == ("", "")


def test_waiting_prints_lines_and_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def several_lines() -> bool:
        printed.append(capsys.readouterr().err)
        return "".join(printed).count("\n") > 2

    def work() -> None:
        with show_waiting("playing", every_s=0.01):
            wait_until(several_lines)
            raise KeyError("it")

    with pytest.raises(KeyError):
        work()
    assert all(line.startswith("hush: playing, ") for line in "".join(printed).splitlines())
    assert not any(thread.name == "waiting" for thread in threading.enumerate())


@pytest.mark.medium
async def test_a_stopped_run_judges_exactly_those_who_answered() -> None:
    stop = asyncio.Event()

    def progress(counted: int, _: int) -> None:
        if counted > 5_500:
            stop.set()

    done = await hush.simulate_async(clients=5_000, rounds=3, engine="memory", seed=3, progress=progress, stop=stop)
    assert done.stopped
    first, second = done.rounds
    assert first.result.n == len(first.reporters) == 5_000
    assert 500 < second.result.n == len(second.reporters) < 5_000
    values = np.array([done.experiment.values[device] for device in second.reporters], dtype=float)
    assert done.truth["reporters"] == pytest.approx(values.mean())
    assert done.lost == 0
