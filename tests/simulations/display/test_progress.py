"""Progress of long work: a line every few seconds, the rate and the time left, by a clock of the test."""

import asyncio
import io
import sys
import threading

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from waiting import wait_until

import hush
from hush_simulations.display.progress import (
    EVERY_S,
    progress_columns,
    progress_lines,
    rest_in_words,
    show_progress,
    show_waiting,
)


@pytest.mark.parametrize(("missing", "left"), [(59, "59 s left"), (172, "2 min 50 s left"), (5_000, "1 h 23 min left")])
def test_a_long_time_is_rounded(missing: int, left: str) -> None:
    assert rest_in_words(1.0, missing) == left


@pytest.mark.parametrize(("rate", "words"), [(12.0, "12 a second, 20 s left"), (0.25, "4 s each, 16 min left")])
def test_the_rate_is_said_in_its_usual_unit(rate: float, words: str) -> None:
    assert rest_in_words(rate, 240, with_rate=True) == words
    assert not rest_in_words(0.0, 240, with_rate=True)
    assert not rest_in_words(rate, 0, with_rate=True)


def test_a_line_of_progress_comes_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    tick = progress_lines(clock=lambda: now)
    tick("reports", 0, 200_000)
    for second in range(18):
        now = 109.0 + second  # after nine seconds of preparation, which are not in the rate
        for _ in range(100):
            tick("reports", 1_000 * (second + 1), 200_000)
    out, err = capsys.readouterr()
    assert (EVERY_S, out) == (5, "")
    assert [line.split(" of ")[0] for line in err.splitlines()] == ["hush: 6 000", "hush: 11 000", "hush: 16 000"]
    assert err.splitlines()[0].endswith("(3 %), 14 s, 3 min 10 s left")


@pytest.mark.parametrize(("width", "has_bar"), [(40, False), (64, True), (80, True)])
@pytest.mark.parametrize(("what", "total", "with_rate"), [("reports counted", 20_000, False), ("cells", 200, True)])
def test_on_a_terminal_progress_is_one_line(
    what: str, total: int, width: int, *, with_rate: bool, has_bar: bool
) -> None:
    now = 0.0
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    columns = progress_columns(console, with_rate=with_rate)
    progress = Progress(*columns, console=console, get_time=lambda: now)
    bar = progress.add_task(what, total=total)
    for now in range(1, 31):
        progress.update(bar, completed=now * total / 100)
    with console.capture() as shown:
        console.print(progress)
    (line,) = shown.get().splitlines()
    assert "1 min 10 s left" in line
    assert "…" not in line
    assert ("━" in line, "0:00:30" in line) == (has_bar, has_bar)
    assert ("2 a second" in line) == (with_rate and has_bar)


def test_in_a_pipe_a_short_run_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with show_progress() as (tick, look):
        tick("reports counted", 0, 10)
        tick("reports counted", 10, 10)
    assert look is None
    assert capsys.readouterr() == ("", "")


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
