"""Work that takes long shows that it goes on, and no more."""

import threading
import time

import pytest

from hush_simulations.display.progress import show_waiting


def test_long_work_prints_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with show_waiting("playing the attack link", every_s=0.01):
        time.sleep(0.1)
    seconds = time.monotonic() - began
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert 1 <= len(lines) <= seconds / 0.01
    assert set(lines) == {"hush: playing the attack link, 0 s"}


def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_waiting("playing the attack link", every_s=60):
        pass
    assert capsys.readouterr().err == ""


def test_an_error_passes_and_ends_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), show_waiting("playing", every_s=30):
        raise KeyError("it")
    assert "waiting" not in {thread.name for thread in threading.enumerate()}
    assert capsys.readouterr().err == ""
