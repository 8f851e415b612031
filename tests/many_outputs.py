"""Runs a legal call of every command that ends by itself, with several kinds of standard output, in forked processes.

Each is run with a file, a full disk and one of the other kinds in turn; with `all`, with each kind. The first argument
is a directory; standard output is a JSON list with what became of each call.
"""

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from commands import commands
from inputs import CALLS, STATE_FILES, Call, tasks_at_hand
from many_commands import forked, run_here

_ENDLESS = {"serve", "gateway", "http", "watch", "poll", "broker run"}
_HASTY = {"sync"}  # its calls have a time in which it may or may not be done
ALWAYS, IN_TURN = ("file", "full"), ("closed", "ended", "ascii")


def calls() -> Iterator[Call]:
    """One of each command; and those whose document goes to standard output."""
    seen = _ENDLESS | _HASTY
    for one in CALLS:
        if one.command not in seen or (one.command not in _ENDLESS | _HASTY | {"sweep"} and "--json" in one.given):
            seen.add(one.command)
            yield one
    yield Call("sync", {"--state": "state", "--timeout": "60", "--broker": "mqtt://127.0.0.1:9"}, files=STATE_FILES)
    memory = {"--engine": "memory", "--clients": "4", "--seed": "7", "--out": "made"}
    yield Call("simulate", memory)
    yield Call("simulate", {**memory, "--json": ""})
    yield Call("feasible", {"--people": "900", "--domain": "bit", "--epsilon": "0.5,2", "--out": "made"})


def _open(kind: str, file: Path) -> None:
    """Let standard output be of this kind, as after a redirection by a shell, and standard error go to a file."""
    os.dup2(os.open(file / "err", os.O_CREAT | os.O_WRONLY, 0o600), 2)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", line_buffering=True)
    if kind == "closed":
        os.close(1)
        sys.stdout = None
        return
    if kind == "ended":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    else:
        name = "/dev/full" if kind == "full" else file / "out"
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), 1)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="ascii" if kind == "ascii" else "utf-8")


def _run(one: Call, kind: str, place: Path) -> int:
    work = place / "work"
    for name, content in one.files.items():
        (work / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (work / name).write_bytes(content)
        (work / name).chmod(0o600)
    os.chdir(work)
    reader, writer = os.pipe()
    os.write(writer, one.typed)
    os.close(writer)
    os.dup2(reader, 0)
    os.environ.clear()
    os.environ.update({"HOME": str(work), "PATH": "/usr/bin:/bin", **one.environment})
    _open(kind, place)
    with tasks_at_hand():
        return run_here(one.arguments())


def _forked(one: Call, kind: str, place: Path) -> dict[str, object]:
    child = forked(lambda: _run(one, kind, place))
    _, status = os.waitpid(child, 0)
    made = [str(path.relative_to(place / "work")) for path in sorted((place / "work").rglob("*")) if path.is_file()]
    out = (place / "out").read_bytes().decode() if (place / "out").exists() else ""
    words = {"call": " ".join(one.arguments()), "command": one.command, "kind": kind}
    return {
        **words,
        "code": os.waitstatus_to_exitcode(status),
        "out": out,
        "err": (place / "err").read_text("utf-8", "replace"),
        "made": made,
    }


def everything(directory: Path, *, is_whole: bool) -> list[dict[str, object]]:
    return [
        _forked(one, kind, Path(tempfile.mkdtemp(dir=directory)))
        for place, one in enumerate(calls())
        for kind in (*ALWAYS, *(IN_TURN if is_whole else (IN_TURN[place % len(IN_TURN)],)))
    ]


if __name__ == "__main__":
    commands()  # loads their modules once, before the forks
    found = everything(Path(sys.argv[1]), is_whole="all" in sys.argv[2:])
    sys.stdout.write(json.dumps(found))
