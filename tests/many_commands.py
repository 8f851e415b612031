"""Runs many `hush` commands, each in a process of its own that is forked here: the interpreter starts once.

Standard input is a JSON list of command lines, standard output one of their exit codes.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hush_client.commands.report  # noqa: F401 - loaded before the forks, which then start at once
from hush.__main__ import main

__all__ = ["forked", "run_here"]

_AT_ONCE = 40


def run_here(arguments: Sequence[str]) -> int:
    """The exit code of a command in this process; 70 after an error that would end in a traceback."""
    sys.argv = ["hush", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:  # noqa: BLE001 - a fork must never return to the loop of its parent
        os.write(2, f"Traceback: {error!r}".encode())
        return 70
    return 0


def forked(work: Callable[[], int]) -> int:
    """A process that does this and ends with its result as its code; its number."""
    if (child := os.fork()) != 0:
        return child
    code = work()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _logged(arguments: Sequence[str], log: Path) -> int:
    with log.open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    return run_here(arguments)


def _run_all(lines: Sequence[Sequence[str]], log: Path) -> list[int]:
    """The exit codes, in order."""
    running: dict[int, int] = {}
    codes = [-1] * len(lines)

    def wait() -> None:
        child, status = os.wait()
        codes[running.pop(child)] = os.waitstatus_to_exitcode(status)

    for number, arguments in enumerate(lines):
        if len(running) == _AT_ONCE:
            wait()
        running[forked(lambda arguments=arguments: _logged(arguments, log))] = number  # type: ignore[misc]
    while running:
        wait()
    return codes


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_run_all(json.load(sys.stdin), Path(sys.argv[1]))))
