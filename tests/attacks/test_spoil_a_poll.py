"""Somebody wants a poll in a room to be of no use: nobody can answer, the result is lost, or it is theirs.

With the real command, on real sockets.
"""

import asyncio
import json
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from polls import TEA, Command, asking, polling, reports_of, running
from waiting import PATIENCE_S, until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from hush import Task
from hush_aggregator.store.location import open_reader
from hush_client import MqttTransport
from hush_client.sending.transport import Link
from hush_common.broker_url import BrokerUrl
from hush_common.task import decode_task
from hush_common.topics import ALL_TASKS, report_topic, task_topic
from hush_poll import server
from hush_poll.questions import make_question

pytestmark = [pytest.mark.medium, pytest.mark.face]

ASK = ("Tea?", "--yes-no", "--json", "--bind", "127.0.0.1", "--port", "0")
NEXT = make_question("Coffee?", {"kind": "bit"}, "1")
LISTENS = "0A"  # in /proc/net/tcp
HELLO = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01x"
ENDLESS = b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x04\x02\x00\x3c"  # a CONNECT that announces 256 MB
SUBSCRIBE = b"\x82\x13\x00\x01\x00\x0ehush/v1/tasks/\x01"


async def question(link: Link) -> Task:
    await link.subscribe(ALL_TASKS)
    return decode_task((await link.receive())[1])


async def answer(phone: BrokerUrl, n: int, reports: int = 1) -> None:
    """Send so many messages, each with so many reports and of another sender."""
    async with MqttTransport(phone, "phone").connect() as link:
        task = await question(link)
        for number in range(n):
            await link.publish(report_topic(task.id, f"phone-{number}"), reports_of(task, reports))


def end(poll: Command, *signals: int) -> tuple[int, int, str]:
    """Send the signals, each after a line of the command; return its answers and code, and what it wrote since."""
    told = ""
    assert poll.process.stderr is not None
    for number in signals:
        poll.process.send_signal(number)
        if number == signal.SIGINT and not told:
            told = poll.process.stderr.readline()
    out, err = poll.process.communicate(timeout=PATIENCE_S)
    (result,) = json.loads(out)["results"]
    return result["answers"], poll.process.returncode, told + err


@contextmanager
def reopening(port: int, most: int) -> Iterator[list[int]]:
    """A thread that opens connections without a word from another address, and opens each again that is closed.

    The list says how many.
    """
    opened, over = [0], threading.Event()

    def reopen() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            for one in list(held):
                with suppress(BlockingIOError, ConnectionError):
                    if one.recv(1):
                        continue
                    one.close()
                    held.remove(one)
            with suppress(OSError):
                while len(held) < most and not over.is_set():
                    held.append(socket.create_connection(("127.0.0.1", port), 1, ("127.0.0.2", 0)))
                    held[-1].setblocking(False)
                    opened[0] += 1
        for one in held:
            one.close()

    thread = threading.Thread(target=reopen)
    thread.start()
    try:
        yield opened
    finally:
        over.set()
        thread.join()


class Flood:
    """Four phones that send without end, until the command reads no more."""

    def __init__(self, broker: BrokerUrl, hello: bytes, then: bytes, *, reads: bool) -> None:
        self._broker, self._hello, self._then, self._reads = broker, hello, then, reads
        self._phones: list[ClientConnection] = []
        self._stuck = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        for _ in range(4):
            phone = await connect(str(self._broker), subprotocols=[Subprotocol("mqtt")], compression=None)
            self._phones.append(phone)
            self._tasks.append(asyncio.create_task(self._send(phone)))
        await until(lambda: self._stuck == len(self._phones))

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for phone in self._phones:
            phone.transport.abort()

    async def _send(self, phone: ClientConnection) -> None:
        is_stuck = False
        try:
            await phone.send(self._hello)
            if not self._reads:
                await phone.recv()
                phone.transport.pause_reading()
            while True:
                sending = asyncio.ensure_future(phone.send(self._then))
                await asyncio.wait((sending,), timeout=None if is_stuck else 1)
                if not sending.done():
                    is_stuck = True
                    self._stuck += 1
                await sending
        except (ConnectionClosed, OSError):
            self._stuck += not is_stuck


@pytest.mark.large
async def test_connections_that_say_nothing_keep_no_phone_out_and_print_nothing() -> None:
    with polling(*ASK, start='ulimit -n 256; exec "$@"') as poll:
        with reopening(poll.port, 400) as opened:
            await until(lambda: opened[0] > 400)  # more than the files of the command
            for _ in range(3):
                await answer(poll.broker, 1)
        answers, code, told = await asyncio.to_thread(end, poll, signal.SIGINT)
    assert (answers, code) == (3, 0)
    assert "Traceback" not in told
    assert len(told.splitlines()) == 1


async def test_one_address_with_the_code_leaves_half_of_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "open_file_limit", lambda: 0)  # which leaves the fewest
    async with running(asking(TEA)) as poll:
        taken: list[ClientConnection] = []
        for _ in range(40):
            with suppress(OSError, WebSocketException):
                one = await connect(
                    str(poll.broker), subprotocols=[Subprotocol("mqtt")], local_addr=("127.0.0.2", 0), compression=None
                )
                await one.send(HELLO[:-1] + bytes([65 + len(taken)]))
                assert await one.recv() == b"\x20\x02\x00\x00"
                taken.append(one)
        assert len(taken) == 16
        await answer(poll.broker, 1)
        await poll.counts(1)
        for one in taken:
            one.transport.abort()


@pytest.mark.large
@pytest.mark.parametrize(
    ("hello", "then", "reads"),
    [(ENDLESS, bytes(60_000), True), (HELLO, bytes(60_000), True), (HELLO, SUBSCRIBE * 1000, False)],
    ids=["a packet without an end", "what is not a packet", "questions without reading the answers"],
)
async def test_phones_that_flood_the_broker_cannot_hold_up_the_end(hello: bytes, then: bytes, reads: bool) -> None:
    with polling(*ASK) as poll:
        await answer(poll.broker, 12)
        async with Flood(poll.broker, hello, then, reads=reads):
            answers, code, told = await asyncio.to_thread(end, poll, signal.SIGINT)
    assert (answers, code) == (12, 0)
    assert told.count("\n") == 1


@pytest.mark.large
@pytest.mark.parametrize(
    "signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=["Ctrl-C twice", "SIGTERM"]
)
async def test_an_impatient_end_loses_no_answer(signals: tuple[int, ...], tmp_path: Path) -> None:
    with polling(*ASK, "--out", str(tmp_path)) as poll:
        await answer(poll.broker, 12)
        await poll.counts(12)
        answers, code, told = await asyncio.to_thread(end, poll, *signals)
    assert (answers, code) == (12, 128 + signals[-1])
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["n"] == 12
    assert "Traceback" not in told


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_other_users_of_the_machine_find_no_broker() -> None:
    """The pages have the only port, and the socket of the broker is in a directory that only its user may enter."""
    with polling(*ASK) as poll:
        process = Path(f"/proc/{poll.process.pid}")
        own = set[str]()
        for one in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                own.add(str(one.readlink()).removeprefix("socket:[").rstrip("]"))

        def lines(kind: str) -> list[list[str]]:
            text = (process / "net" / kind).read_text(encoding="utf-8")
            return [line.split() for line in text.splitlines()[1:]]

        of_tcp = [fields for kind in ("tcp", "tcp6") for fields in lines(kind) if fields[9] in own]
        assert {int(fields[1][-4:], 16) for fields in of_tcp if fields[3] == LISTENS} == {poll.port}
        (place,) = {fields[7] for fields in lines("unix") if fields[6] in own and len(fields) > 7}
        assert stat.S_IMODE(Path(place).parent.stat().st_mode) == 0o700


async def test_a_message_with_reports_of_many_counts_nothing() -> None:
    async with running(asking(TEA)) as poll:
        await answer(poll.broker, 3, reports=2)
        await answer(poll.broker, 1)
        await poll.counts(1)
        poll.stop.set()
        (ended,) = await poll.done
    assert ended.answers == 1


async def test_a_quota_counts_so_many_answers_of_a_sender() -> None:
    async with running(asking(TEA, quota=2)) as poll:
        for _ in range(4):
            await answer(poll.broker, 2)  # two senders, each time
        await poll.counts(4)
        poll.stop.set()
        (ended,) = await poll.done
    assert ended.answers == 4


async def test_a_question_that_the_room_has_seen_closed_counts_nothing_more(tmp_path: Path) -> None:
    async with running(asking(TEA, NEXT, in_turn=True, store=tmp_path / "store")) as poll:
        await answer(poll.broker, 3)
        await poll.counts(3)
        async with MqttTransport(poll.broker, "late").connect() as link:
            task = await question(link)
            poll.forward.set()
            while (await link.receive())[0] != task_topic(NEXT.id):
                pass
            with closing(open_reader(tmp_path / "store")) as store:
                await until(lambda: store.is_closed(task.digest))
            for _ in range(20):
                await link.publish(report_topic(task.id, "late"), reports_of(task, 1))
            await link.publish(report_topic(NEXT.id, "late"), reports_of(NEXT, 1))
        await poll.counts(1)
        poll.stop.set()
        ended = await poll.done
    assert [one.answers for one in ended] == [3, 1]
    assert ended[0].result.final


async def test_errors_that_nobody_handles_are_one_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    """As those of asyncio where the system has no room for a connection, many times a second."""
    async with running(asking(TEA)) as poll:
        loop = asyncio.get_running_loop()
        for number in range(1000):
            error = OSError(24, "Too many open files") if number % 2 else ValueError("Invalid file descriptor: -1")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
        await answer(poll.broker, 1)
        await poll.counts(1)
    _, told = capfd.readouterr()
    assert "Traceback" not in told
    assert told.count("Too many open files") == told.count("Invalid file descriptor") == 1
    assert len(told.splitlines()) == 2
