"""A whole poll in this process, and one of the real command."""

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from waiting import PATIENCE_S

from hush import Task
from hush_client import Client, Policy
from hush_common.broker_url import BrokerUrl
from hush_common.rng import SystemRng
from hush_common.wire import Report, encode_frame
from hush_poll.questions import Questions, make_question
from hush_poll.session import Answered, Opened, PollSettings, run_poll

HOURS = make_question("How many hours did you sleep?", {"kind": "number", "lower": 0, "upper": 14, "unit": "h"}, "2")
_NUMBERS = count()
TEA = make_question("Tea?", {"kind": "bit"}, "1")


class Running(NamedTuple):
    opened: Opened
    stop: asyncio.Event
    forward: asyncio.Event
    done: asyncio.Task[list[Answered]]

    @property
    def path(self) -> str:
        return "/" + self.opened.address.split("/", 3)[3]

    @property
    def port(self) -> int:
        return int(self.opened.address.split(":")[2].split("/")[0])

    @property
    def broker(self) -> BrokerUrl:
        return BrokerUrl.parse(f"ws://127.0.0.1:{self.port}{self.path}mqtt")

    async def get(self, path: str) -> tuple[int, str]:
        """The status and the text of a page, by its whole path."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), f"{head.decode()}\r\n\r\n{body.decode()}"

    async def answer(self, directory: Path, value: object, task: str = HOURS.id, at: BrokerUrl | None = None) -> str:
        """Answer with a new device; return the status of its receipt."""
        number = next(_NUMBERS)
        policy = Policy(max_epsilon=4, lifetime=4)
        async with Client(
            at or self.broker, device=f"phone-{number}", state=directory / f"{number}", spread=0, policy=policy
        ) as client:
            receipt = await client.report(task, value)
            return receipt.status

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while not await condition():  # noqa: ASYNC110 - over HTTP nothing tells
                await asyncio.sleep(0.1)

    async def counts(self, n: int) -> None:
        async def shows() -> bool:
            return f'data-answers="{n}"' in (await self.get(f"{self.path}screen/figures"))[1]

        await self.until(shows)


@asynccontextmanager
async def running(settings: PollSettings) -> AsyncIterator[Running]:
    stop, forward = asyncio.Event(), asyncio.Event()
    opened: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
    done = asyncio.create_task(run_poll(settings, stop, forward, opened.set_result), name="poll")
    done.add_done_callback(lambda _: opened.done() or opened.cancel())
    with suppress(asyncio.CancelledError):
        await opened
    if done.done():
        await done
    try:
        yield Running(await opened, stop, forward, done)
    finally:
        done.cancel()
        await asyncio.wait([done])


def asking(*tasks: object, **more: object) -> PollSettings:
    in_turn = bool(more.pop("in_turn", False))
    return PollSettings(Questions(tasks, in_turn), bind="127.0.0.1", **more)  # type: ignore[arg-type]


def reports_of(task: Task, n: int) -> bytes:
    """A message with so many reports for a question with yes and no."""
    return encode_frame([Report.new(task.report_digest, 0, (1,), SystemRng()) for _ in range(n)])


class Command(NamedTuple):
    """A poll of the real command."""

    process: "subprocess.Popen[str]"
    address: str  # of its page
    said: str  # on standard error until phones could answer

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].split("/")[0])

    @property
    def broker(self) -> BrokerUrl:
        return BrokerUrl.parse(f"{self.address.replace('http', 'ws', 1)}mqtt")

    async def counts(self, n: int) -> None:
        """Wait until the screen shows so many answers."""

        def shows() -> bool:
            with urllib.request.urlopen(f"{self.address}screen/figures", timeout=PATIENCE_S) as answer:  # noqa: S310 - http
                return f'data-answers="{n}"'.encode() in answer.read()

        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(shows):  # noqa: ASYNC110 - over HTTP nothing tells
                await asyncio.sleep(0.1)


@contextmanager
def polling(*arguments: str, start: str = 'exec "$@"') -> Iterator[Command]:
    """Run `hush poll` with these arguments, as this command of the shell does, until phones can answer."""
    command = ["sh", "-c", start, "sh", sys.executable, "-m", "hush", "poll", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            while "Ctrl-C ends the poll" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            yield Command(process, re.findall(r"phones: +(\S+)", said)[0], said)
        finally:
            process.kill()
