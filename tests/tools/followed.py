"""Copied beside a package as `sitecustomize.py`, which Python imports when it starts: what of it a process reaches.

Each line is told the first time and at once, since a test may kill the process.
"""

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["TOLD"]

TOLD = "HUSH_LINES_REACHED"
"""The environment's name of the file that is told `path:line` of each line."""


def _follow(told: str, folder: str) -> None:
    seen = set[tuple[str, int]]()
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        return line if frame.f_code.co_filename.startswith(folder) else None

    def line(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        reached = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and reached not in seen:
            seen.add(reached)
            os.write(descriptor, f"{reached[0]}:{reached[1]}\n".encode())
        return line

    threading.settrace(enter)
    sys.settrace(enter)


if __name__ == "sitecustomize" and TOLD in os.environ:
    _follow(os.environ[TOLD], f"{Path(__file__).parent}/")
