"""Runs many `hush` commands, each in a process of its own that is forked here: the interpreter starts once.

Standard input is a JSON list of command lines, standard output one of their exit codes.
"""

import json
import os
import sys
from pathlib import Path

import hush_client.commands.report  # noqa: F401 - loaded before the forks, which then start at once
from hush.__main__ import main

_AT_ONCE = 40


def _run(arguments: list[str], log: Path) -> int:
    with log.open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["hush", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - a fork must never return to the loop of its parent
        return 70
    return 0


def run_all(lines: list[list[str]], log: Path) -> list[int]:
    """The exit codes, in order."""
    running: dict[int, int] = {}
    codes = [-1] * len(lines)
    for number, arguments in enumerate(lines):
        if len(running) == _AT_ONCE:
            _wait(running, codes)
        child = os.fork()
        if child == 0:
            os._exit(_run(arguments, log))
        running[child] = number
    while running:
        _wait(running, codes)
    return codes


def _wait(running: dict[int, int], codes: list[int]) -> None:
    child, status = os.wait()
    codes[running.pop(child)] = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    found = run_all(json.load(sys.stdin), Path(sys.argv[1]))
    sys.stdout.write(json.dumps(found))
