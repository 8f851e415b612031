"""A gateway that is killed: a program that forks one gateway for each line it reads, and says how that one ended.

The step at which a gateway dies is installed from outside: it is recognised in the text of the SQL, in the first bytes
of MQTT packets on the socket, and in the return of a publication. Nothing in the product knows of it. Forking makes
a kill cost a tenth of a second instead of the start of an interpreter; the process that dies is a process all the same.
"""

import asyncio
import copy
import json
import os
import signal
import socket
import sqlite3
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from hush_client import Gateway, MqttTransport, Receipt, Transport
from hush_client.sending.transport import Link
from hush_client.state.database import FILE_NAME
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.topics import Acknowledgement

__all__ = ["STEPS", "Fuse", "Job", "encode"]

STEPS = tuple(
    f"{step}-{side}"
    for step in ("charge", "store", "connect", "publish", "acknowledge", "delete")
    for side in ("before", "after")
)
"""`charge`: around the ledger's INSERT. `store`: around the COMMIT of charge and report. `connect`: before the first
byte to the broker; after the first byte of its welcome. `publish`: before and after the bytes are handed to the
socket. `acknowledge`: the broker's byte has come and nobody has looked at it; the publication has returned. `delete`:
around the COMMIT that forgets what was acknowledged."""


@dataclass(frozen=True, slots=True)
class Job:
    """One life of a gateway.

    Args:
        state: its directory.
        url: the broker.
        again: how many devices are asked again, as after any restart.
        fresh: how many more are asked for the first time.
        step: where it dies, one of `STEPS`; "" for nowhere.
        occurrence: at which time it comes there, counted from 1.
        early: whether it may die while it makes good what its predecessor left.
        after: seconds after which it is killed wherever it is; None for no such kill.
        receipts: a file for the receipts of the devices, or "".
        planted: a fault of the product to imitate: "split" commits the charge before the report, "redraw" changes a
            report when it is sent, "forget" deletes it then and not when it is acknowledged; "" for none.
    """

    state: str
    url: str
    again: int
    fresh: int
    step: str = ""
    occurrence: int = 1
    early: bool = False
    after: float | None = None
    receipts: str = ""
    planted: str = ""


class Fuse:
    """Kills this process at the n-th time that a step is reached while the fuse is armed."""

    def __init__(self, step: str, occurrence: int) -> None:
        self.step = step
        self.armed = False
        self._left = occurrence

    def reach(self, step: str) -> None:
        if not self.armed or not step or step != self.step:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


class _Connection(sqlite3.Connection):
    """Sees the steps of a transaction in its SQL."""

    fuse: Fuse
    planted: str
    wrote: frozenset[str] = frozenset()

    def execute(self, sql: str, parameters: Any = (), /) -> Any:  # noqa: ANN401 - as SQLite's
        steps = self._steps(sql)
        for step in steps:
            self.fuse.reach(f"{step}-before")
        cursor = super().execute(sql, parameters)
        if self.planted == "split" and steps == {"charge"}:
            for statement in ("COMMIT", "BEGIN IMMEDIATE", "SAVEPOINT job"):
                super().execute(statement)
        for step in steps:
            self.fuse.reach(f"{step}-after")
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        self._steps(sql)
        return super().executemany(sql, parameters)

    def _steps(self, sql: str) -> frozenset[str]:
        if sql.startswith("BEGIN"):
            self.wrote = frozenset()
        elif sql.startswith("INSERT INTO outbox"):
            self.wrote |= {"store"}
        elif sql.startswith("DELETE FROM outbox"):
            self.wrote |= {"delete"}
        elif sql.startswith("INSERT INTO charge"):
            return frozenset({"charge"})
        elif sql == "COMMIT":
            return self.wrote
        return frozenset()


def _watch_database(fuse: Fuse, planted: str) -> None:
    factory = type("_Watched", (_Connection,), {"fuse": fuse, "planted": planted})
    patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=factory)).start()


class _Stream:
    """Where packets of MQTT begin in one direction of a connection."""

    def __init__(self) -> None:
        self._head = bytearray()  # of a packet whose length has not come whole
        self._rest = 0  # bytes of the packet that has begun

    def kinds(self, data: bytes) -> list[int]:
        """The upper half of the first byte of each packet that begins in what comes next."""
        found = []
        for byte in data:
            if self._rest:
                self._rest -= 1
                continue
            if not self._head:
                found.append(byte & 0xF0)
            self._head.append(byte)
            if len(self._head) > 1 and byte < 0x80:
                self._rest = sum((digit & 0x7F) << 7 * place for place, digit in enumerate(self._head[1:]))
                self._head.clear()
        return found


def _watch_sockets(fuse: Fuse) -> None:
    """See the steps in the packets on the socket, many of which may go or come at once."""
    send, recv = socket.socket.send, socket.socket.recv
    streams: WeakKeyDictionary[socket.socket, tuple[_Stream, _Stream]] = WeakKeyDictionary()

    def of(connection: socket.socket) -> tuple[_Stream, _Stream]:
        return streams.setdefault(connection, (_Stream(), _Stream()))

    def watched_send(self: socket.socket, data: bytes, flags: int = 0) -> int:
        out, _ = of(self)
        names = {0x10: "connect", 0x30: "publish"}
        for kind in copy.deepcopy(out).kinds(data):
            fuse.reach(f"{names.get(kind, '')}-before")
        sent = send(self, data, flags)
        for kind in out.kinds(data[:sent]):
            fuse.reach("publish-after" if kind == 0x30 else "")
        return sent

    def watched_recv(self: socket.socket, size: int, flags: int = 0) -> bytes:
        data = recv(self, size, flags)
        for kind in of(self)[1].kinds(data):
            fuse.reach({0x20: "connect-after", 0x40: "acknowledge-before"}.get(kind, ""))
        return data

    patch.object(socket.socket, "send", watched_send).start()
    patch.object(socket.socket, "recv", watched_recv).start()


class _WatchedTransport:
    """Passes everything on. To reach the step `connect` with reports waiting, it loses the connection once."""

    def __init__(self, inner: Transport, fuse: Fuse, job: Job) -> None:
        self.fuse = fuse
        self.job = job
        self.cut = fuse.step.startswith("connect")
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        async with self._inner.connect() as link:
            yield _WatchedLink(self, link)


class _WatchedLink:
    def __init__(self, transport: _WatchedTransport, inner: Link) -> None:
        self._transport = transport
        self._inner = inner
        self.subscribe = inner.subscribe
        self.receive = inner.receive

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        fuse, job = self._transport.fuse, self._transport.job
        if self._transport.cut and fuse.armed:
            self._transport.cut = False
            raise BrokerError(self._transport.name, "the connection is lost, as the test wants it")
        if job.planted == "redraw":
            payload = payload[:-1] + os.urandom(1)
        if job.planted == "forget":
            await asyncio.to_thread(_empty_outbox, Path(job.state))
        answer = await self._inner.publish(topic, payload)
        fuse.reach("acknowledge-after")
        return answer


def _empty_outbox(state: Path) -> None:
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        connection.execute("DELETE FROM outbox")
        connection.commit()


async def _live(job: Job, fuse: Fuse) -> None:
    """Ask the old devices again, send what is left over, then ask the new ones."""
    transport = _WatchedTransport(MqttTransport(BrokerUrl.parse(job.url), "g"), fuse, job)
    async with Gateway(transport, name="g", state=Path(job.state), spread=0) as gateway:
        fuse.armed = job.early
        for devices in (range(job.again), range(job.again, job.again + job.fresh)):
            receipts = await asyncio.gather(*(gateway.report(f"d{n}", "heights", 172.0) for n in devices))
            if not await gateway.flush(timeout=120):
                raise TimeoutError("reports are still waiting")
            if job.receipts and devices:
                await asyncio.to_thread(_write, Path(job.receipts), receipts)
            fuse.armed = True


def _write(path: Path, receipts: list[Receipt]) -> None:
    path.write_text(json.dumps([[r.status, r.report_id] for r in receipts]), encoding="utf-8")


def _run(job: Job) -> int:
    fuse = Fuse(job.step, job.occurrence)
    _watch_database(fuse, job.planted)
    _watch_sockets(fuse)
    try:
        asyncio.run(_live(job, fuse))
    except BaseException:  # noqa: BLE001 - a fork must never return to the loop of its parent
        traceback.print_exc()
        return 1
    return 0


def _fork(job: Job) -> dict[str, object]:
    """Run one gateway to its end: 0, 1, or minus the number of a signal, and the seconds that it lived."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(_run(job))
    if job.after is not None:
        time.sleep(job.after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return {"end": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - began}


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_fork(Job(**json.loads(line)))) + "\n")
        sys.stdout.flush()


def encode(job: Job) -> bytes:
    """The line that makes this program run a job."""
    return json.dumps(asdict(job)).encode() + b"\n"


if __name__ == "__main__":
    main()
