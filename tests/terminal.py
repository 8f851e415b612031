"""A program at a terminal, as a person sits there."""

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["at_terminal"]


def at_terminal(
    command: Sequence[str], directory: Path, *, environment: Mapping[str, str] | None = None, typed: str = ""
) -> tuple[int, str]:
    """Run a program with a terminal for standard input, output and error; its exit code, and all that is shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        list(command), cwd=directory, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        os.close(ours)
        return process.wait(60), shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux says so when the last program has closed the terminal
        return b""
