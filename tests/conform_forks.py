"""Start conform_device.py as forks of a process that has imported hush: a start then takes a tenth of the time.

The tests of `hush conform` start that device some hundred times, and nearly all of it would be imports. A fork is a
process with its own group, environment and files, and is killed as any other.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["DEVICE", "forks"]

DEVICE = Path(__file__).with_name("conform_device.py")
_SETTINGS = {"STATE": "/", "MAX_EPSILON": "4", "SENDER": "-", "TASK": "-", "BROKER": "mqtt://-:0"}
_MOST_BYTES = 1 << 17


class Fork:
    """What hush uses of `asyncio.subprocess.Process`. Its exit code is not known: it is killed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._end()
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._close)

    async def wait(self) -> int:
        await self._ended.wait()
        return -signal.SIGKILL

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._end()

    def _end(self) -> None:
        self.returncode = -signal.SIGKILL
        self._ended.set()


class Forks:
    """Asks the process that forks."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server

    async def start(self, *words: str, env: Mapping[str, str], stdin: BinaryIO, stdout: int, **_: object) -> Fork:
        """Take the place of `asyncio.create_subprocess_exec`."""
        assert words[:2] == (sys.executable, str(DEVICE))
        request = json.dumps([words[1:], dict(env)]).encode()
        socket.send_fds(self._server, [request], [stdin.fileno(), stdout])
        return Fork(int(self._server.recv(32)))


@contextmanager
def forks() -> Iterator[Forks]:
    """The process that forks, while the context is open."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(theirs.fileno())]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        yield Forks(ours)
        ours.close()
        assert process.wait(60) == 0


def _serve(requests: socket.socket) -> None:
    program = compile(DEVICE.read_text(encoding="utf-8"), str(DEVICE), "exec")
    os.environ.update({f"HUSH_{name}": text for name, text in _SETTINGS.items()})
    exec(program, {"__name__": "imported"})  # noqa: S102 - the device of these tests
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no fork waits to be reaped
    while True:
        request, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 2)
        if not request:
            return
        pid = os.fork()
        if not pid:
            requests.close()
            _become(program, request, files)
        with suppress(ProcessLookupError):
            os.setpgid(pid, pid)
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


def _become(program: object, request: bytes, files: list[int]) -> None:
    """Run the device in a fork."""
    os.setpgid(0, 0)
    for number, file in enumerate((*files, files[1])):
        os.dup2(file, number)
    words, environment = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    try:
        exec(program, {"__name__": "__main__"})  # type: ignore[arg-type]  # noqa: S102 - the device of these tests
    finally:
        os._exit(1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
