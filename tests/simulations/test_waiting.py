"""Work that takes long shows that it goes on, and no more."""

import re
import threading
import time

import pytest
from waiting import wait_until

from hush_simulations.display.progress import show_waiting


def test_long_work_prints_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    printed = [""]

    def several_lines() -> bool:
        shown = capsys.readouterr()
        assert shown.out == ""
        printed.append(shown.err)
        return "".join(printed).count("\n") > 2

    began = time.monotonic()
    with show_waiting("playing the attack link", every_s=0.01):
        wait_until(several_lines)
    several_lines()
    seconds = time.monotonic() - began
    lines = "".join(printed).splitlines()
    assert len(lines) <= seconds / 0.01
    assert lines[0] == "hush: playing the attack link, 0 s" or seconds > 1
    assert all(re.fullmatch(r"hush: playing the attack link, \d+ s", line) for line in lines)


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_waiting("playing the attack link", every_s=60):
        pass
    assert capsys.readouterr().err == ""


def test_an_error_passes_and_ends_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), show_waiting("playing", every_s=30):
        raise KeyError("it")
    assert "waiting" not in {thread.name for thread in threading.enumerate()}
    assert capsys.readouterr().err == ""
