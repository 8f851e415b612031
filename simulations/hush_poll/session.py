"""A poll from its start to its end: broker, aggregator, pages, and the question that is open."""

import asyncio
import json
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from hush_aggregator.aggregator import Aggregator
from hush_aggregator.count.tasks import close, withdraw
from hush_aggregator.delivery.mqtt import MqttBroker
from hush_aggregator.estimate.result import Result, utc_now
from hush_aggregator.publish.results import ResultReader
from hush_aggregator.store.base import OpenedStore, Origin, StoreEditor, TaskRow, TaskState
from hush_aggregator.store.location import open_editor
from hush_aggregator.store.quotas import Limits
from hush_aggregator.store.sqlite import SqliteStore
from hush_aggregator.web.page.view import TaskView
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, HushError, StoreError, TaskError, flatten_group
from hush_common.task import Task, decode_task, make_task
from hush_common.terminal import note
from hush_common.topics import estimate_topic, status_topic, task_topic
from hush_poll.logins import Logins
from hush_poll.pages import (
    ShownQuestion,
    files_of_pages,
    login_page,
    render_figures,
    render_participant,
    render_refusal,
    render_screen,
)
from hush_poll.questions import Questions
from hush_poll.relay import Streams
from hush_poll.server import LoginRoute, Page, Route, Site, listen, new_code, serving
from hush_poll.websocket import address_for_browsers, check_websocket
from hush_simulations.brokers.embedded import OWNER, private_broker

_UNDER_WAY_S = 1.5  # reports that phones sent before they learned that a question is closed
_LOOK_S = 0.25
_PATIENCE_S = 10.0
_SETTLE_S = 0.2
_MOST_KINDS = 5


class Until(NamedTuple):
    """When a question closes by itself: after so many answers, or after a time."""

    answers: int | None = None
    after: timedelta | None = None
    at: datetime | None = None


_NEVER = Until()


@dataclass(frozen=True, slots=True)
class PollSettings:
    """How a poll runs."""

    questions: Questions
    until: Until = _NEVER
    is_open: bool = False  # whether nobody needs a code
    bind: str = ""  # the address of an interface; empty for all
    port: int = 0  # a free one for 0
    store: Path | None = None  # None for one that is deleted at the end
    broker: BrokerUrl | None = None  # None for the embedded one
    websocket: BrokerUrl | None = None  # where phones reach that broker
    logins: Path | None = None  # of the phones there, one for each; None for the one in `websocket`, which they share
    quota: int | None = None  # answers of one sender to one question that count; None for any number


@dataclass(frozen=True, slots=True)
class Opened:
    """A poll that phones can open."""

    address: str
    screen: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The end of a question: its result, and the number of answers, also of those below the first release."""

    result: Result
    answers: int


class _Figures:
    """What the screen shows, read again when the store was written."""

    def __init__(self, store: OpenedStore) -> None:
        self.tasks: list[Task] = []
        self._store, self._reader = store, ResultReader(store)
        self._seen: tuple[int, Sequence[str]] = (-1, ())
        self._shown: list[ShownQuestion] = []
        self._lock = asyncio.Lock()

    async def read(self) -> list[ShownQuestion]:
        async with self._lock:
            seen = await asyncio.to_thread(self._store.version), [task.id for task in self.tasks]
            if seen != self._seen:
                self._shown = [await self.of(task) for task in self.tasks]
                self._seen = seen
        return self._shown

    async def of(self, task: Task) -> ShownQuestion:
        row, answers, ended = await asyncio.to_thread(self._counted, task)
        view = TaskView(task, TaskState.OPEN, Origin.COMMAND, ended, utc_now())
        if row is None:  # the aggregator has not stored it yet
            return ShownQuestion(view, 0)
        result = await self._reader.result(task.id)
        return ShownQuestion(replace(view, state=row.state, result=result, n=result.n), answers)

    def _counted(self, task: Task) -> tuple[TaskRow | None, int, bool]:
        """Return the row of a task, all its answers, and whether it is closed."""
        answers = sum(one.n for one in self._store.stored_rounds(task.digest))
        return self._store.task_row(task.id), answers, self._store.is_closed(task.digest)

    async def answers(self) -> int:
        """Return the answers to the question that has the fewest, of those on the screen."""
        counted = [await asyncio.to_thread(self._counted, task) for task in self.tasks]
        return min((answers for _, answers, _ in counted), default=0)


async def run_poll(
    settings: PollSettings,
    stop: asyncio.Event,
    forward: asyncio.Event,
    on_open: Callable[[Opened], None],
    on_end: Callable[[list[Answered]], object] = len,
) -> list[Answered]:
    """Run a poll until `stop` is set, or until it is over; return the ends of its questions.

    `forward` closes the question that is open, of a poll that asks in turn. `on_open` is called once phones can answer.
    `on_end` is called with the ends as soon as they are known: before connections and broker are closed, and also if
    the poll is cancelled or fails.

    Raises:
        BrokerError: there is no connection to the broker.
        OptionError: the port is in use.
        StoreError: the store cannot be opened or written.
    """
    asyncio.get_running_loop().set_exception_handler(_OneLineEach())
    with (
        listen(settings.bind, settings.port) as listener,
        tempfile.TemporaryDirectory(prefix="hush-poll-", ignore_cleanup_errors=True) as directory,
        ExitStack() as stack,
    ):
        logins = None if settings.logins is None else stack.enter_context(closing(Logins(settings.logins)))
        path = settings.store or Path(directory) / "poll.sqlite"
        limits = None if settings.quota is None else Limits(settings.quota)
        store = await asyncio.to_thread(SqliteStore, path, limits)
        try:
            async with _broker(settings) as url:
                if settings.websocket is not None:
                    await check_websocket(settings.websocket, None if logins is None else logins.free)
                with open_editor(path) as editor:
                    poll = _Poll(settings, listener, store, editor, url, logins=logins, on_end=on_end)
                    return await poll.run(stop, forward, on_open)
        except BaseExceptionGroup as errors:
            leaves = list(flatten_group(errors))
            raise next((one for one in leaves if isinstance(one, HushError)), leaves[0]) from errors
        finally:
            await asyncio.to_thread(store.close)


@asynccontextmanager
async def _broker(settings: PollSettings) -> AsyncIterator[BrokerUrl]:
    """Start the embedded broker, or connect to a real one once, so that a mistake ends the command."""
    if settings.broker is not None:
        async with MqttBroker(settings.broker, f"hush-poll-{secrets.token_hex(8)}").connect(()):
            pass
        yield settings.broker
        return
    password = secrets.token_urlsafe(24)
    async with private_broker(password) as url:
        yield replace(url, user=OWNER, password=password)


class _OneLineEach:
    """Reports an error that no task handles, such as of a connection that cannot be accepted: one line for each kind.

    asyncio would print a traceback for each of them.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        del loop
        error = context.get("exception")
        told = str(context["message"]) if error is None else f"{type(error).__name__}: {error}"
        if told not in self._told and len(self._told) < _MOST_KINDS:
            self._told.add(told)
            note(f"WARNING: the poll goes on after an error ({told})")


class _Poll:
    def __init__(
        self,
        settings: PollSettings,
        listener: socket.socket,
        store: SqliteStore,
        editor: StoreEditor,
        url: BrokerUrl,
        *,
        logins: Logins | None,
        on_end: Callable[[list[Answered]], object],
    ) -> None:
        self._logins, self._on_end, self._store = logins, on_end, store
        self._settings, self._listener, self._editor, self._url = settings, listener, editor, url
        self._tasks = _continued(editor, settings.questions)
        self._figures = _Figures(editor)
        self._figures.tasks = [task for task in self._tasks if not editor.is_closed(task.digest)]
        if settings.questions.in_turn:
            del self._figures.tasks[1:]
        for task in self._tasks:
            row = editor.task_row(task.id)
            if row is not None and row.state is not TaskState.CLOSED:
                editor.set_state(task.id, TaskState.OPEN if task in self._figures.tasks else TaskState.WITHDRAWN)
        self._closing: set[asyncio.Task[None]] = set()
        name = self._name = f"poll-{secrets.token_hex(8)}"
        bus = MqttBroker(url, f"hush-{name}", status=status_topic(name), patience=_PATIENCE_S)
        self._aggregator = Aggregator(
            bus, store, tasks=self._figures.tasks, name=name, settle_s=_SETTLE_S, reports_per_message=1
        )

    async def run(
        self, stop: asyncio.Event, forward: asyncio.Event, on_open: Callable[[Opened], None]
    ) -> list[Answered]:
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self._aggregator.run(), name="hush-poll-aggregator")
            while not self._aggregator.connected:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_LOOK_S / 10)
            async with self._pages() as opened:
                on_open(opened)
                try:
                    while not stop.is_set() and await self._wait(stop, forward):
                        await self._ask_next()
                    await self._end()
                finally:
                    for closing in self._closing:
                        closing.cancel()
                    reporting = asyncio.create_task(self._report(), name="hush-poll-report")
                    try:
                        await asyncio.shield(reporting)
                    finally:
                        ended = await reporting  # also if it was cancelled meanwhile, as by another Ctrl-C
            counting.cancel()
        if self._settings.broker is not None:
            await self._tidy()
        return ended

    async def _tidy(self) -> None:
        """Leave no session and no retained message on a broker that others may use, too."""
        with suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S), MqttBroker(self._url, f"hush-{self._name}").connect(()) as session:
                for task in self._tasks:
                    for topic in (task_topic(task.id), estimate_topic(task.id)):
                        await session.publish(topic, b"", retain=True)
                await session.publish(status_topic(self._name), b"", retain=True)

    @asynccontextmanager
    async def _pages(self) -> AsyncIterator[Opened]:
        settings = self._settings
        code = "" if settings.is_open else new_code()
        base = f"/{code}/" if code else "/"
        port = self._listener.getsockname()[1]
        address = f"http://{_host_of(settings.bind)}:{port}{base}"
        common = files_of_pages(address)
        views = [TaskView(task, TaskState.OPEN, Origin.COMMAND, ended=False, now=utc_now()) for task in self._tasks]
        broker, login = f"{base}mqtt", "" if self._logins is None else f"{base}login"
        if settings.websocket is not None:
            broker = address_for_browsers(settings.websocket)
        participant = render_participant(views, base, broker, login=login)

        async def screen() -> Page:
            return render_screen(await self._figures.read(), base, address)

        async def figures() -> Page:
            return render_figures(await self._figures.read(), base)

        site = Site(
            code,
            {"": _constant(participant), "screen": screen, "screen/figures": figures}
            | {name: _constant(page) for name, page in common.items()},
            lambda is_wrong: render_refusal("/", is_wrong=is_wrong),
            {f"/{name}": page for name, page in common.items() if name.startswith("assets/")},
            partial(_connect, self._url) if settings.broker is None else None,
            None if self._logins is None else _login_route(self._logins),
            "" if settings.websocket is None else origin_of(broker),
        )
        async with serving(site, self._listener):
            yield Opened(address, f"{address}screen")

    async def _wait(self, stop: asyncio.Event, forward: asyncio.Event) -> bool:
        """Wait until the question is to be closed; return whether another one follows."""
        began, until = utc_now(), self._settings.until
        forward.clear()
        while not (stop.is_set() or (forward.is_set() and self._settings.questions.in_turn)):
            now = utc_now()
            if until.answers is not None and await self._figures.answers() >= until.answers:
                break
            if until.after is not None and now - began >= until.after:
                break
            if until.at is not None and now >= until.at:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
        is_last = not self._settings.questions.in_turn or self._figures.tasks[-1] is self._tasks[-1]
        return not (is_last or stop.is_set())

    async def _ask_next(self) -> None:
        """Withdraw the question that is open, ask the next one, and close the first once no report is under way."""
        here = self._figures.tasks[-1]
        following = self._tasks[self._tasks.index(here) + 1]

        def write() -> None:
            withdraw(self._editor, here.id)
            self._editor.add_task(following, Origin.COMMAND)
            self._editor.set_state(following.id, TaskState.OPEN)

        await asyncio.to_thread(write)
        self._figures.tasks = [following]
        closing = asyncio.create_task(self._close([here], after=_UNDER_WAY_S), name="hush-poll-close")
        self._closing.add(closing)

    async def _close(self, tasks: Sequence[Task], *, after: float = 0) -> None:
        await asyncio.sleep(after)
        await asyncio.to_thread(lambda: [close(self._editor, task.id) for task in tasks])

    async def _end(self) -> None:
        """Withdraw what is asked, and wait until the reports under way are counted."""
        here = self._figures.tasks
        await asyncio.to_thread(lambda: [withdraw(self._editor, task.id) for task in here])
        await asyncio.sleep(_UNDER_WAY_S)
        await asyncio.gather(*self._closing)

    async def _report(self) -> list[Answered]:
        ended = await self._answered_all()
        self._on_end(ended)
        return ended

    async def _answered_all(self) -> list[Answered]:
        """Close the questions that were asked; with a store, the open ones stay open. Return the ends of all."""
        last = self._tasks.index(self._figures.tasks[-1]) if self._settings.questions.in_turn else len(self._tasks)
        asked = self._tasks[: last + 1]
        with suppress(StoreError):  # without room on the disk, the last release is shown
            open_ones = () if self._settings.store is None else self._figures.tasks
            await self._close([task for task in asked if task not in open_ones])
            await asyncio.to_thread(self._store.release, [task.digest for task in asked], int(utc_now().timestamp()))
        return [await self._answered(task) for task in asked]

    async def _answered(self, task: Task) -> Answered:
        shown = await self._figures.of(task)
        if shown.view.result is None:
            raise StoreError(f"the question {task.id} is not in the store; start the poll again")
        return Answered(shown.view.result, shown.answers)


def _continued(store: StoreEditor, questions: Questions) -> list[Task]:
    """Return the tasks of an earlier start that ask the same, with their ids, where there are some.

    A poll in turn goes on with the first question that is not closed. If all are closed, it begins again.
    """
    stored = [_stored(store, task) for task in questions.tasks]
    if all(one is not None and store.is_closed(one.digest) for one in stored):
        return list(questions.tasks)
    return [one or task for one, task in zip(stored, questions.tasks, strict=True)]


def _stored(store: StoreEditor, task: Task) -> Task | None:
    """Return the task of an earlier start that asks the same, one that is not closed if possible; None without one."""
    found = None
    for row in store.task_rows():
        if not row.payload:
            continue
        with suppress(TaskError):
            stored = decode_task(row.payload)
            asked = make_task(json.loads(task.payload) | {"id": stored.id})
            if asked == replace(stored, payload=asked.payload):
                if row.state is not TaskState.CLOSED:
                    return stored
                found = stored
    return found


async def _connect(url: BrokerUrl) -> Streams:
    """Connect to the embedded broker."""
    if url.is_socket:
        return await asyncio.open_unix_connection(url.host)
    return await asyncio.open_connection(url.host, url.port)


def _login_route(logins: Logins) -> LoginRoute:
    lock = asyncio.Lock()

    async def route(browser: str) -> Page:
        try:
            async with lock:
                return login_page(await asyncio.to_thread(logins.of, browser))
        except ValueError:
            return Page(b"", status=HTTPStatus.BAD_REQUEST)

    return route


def _constant(page: Page) -> Route:
    async def route() -> Page:
        return page

    return route


def origin_of(url: str) -> str:
    """Return the origin of an address, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _host_of(bind: str) -> str:
    """Return the address that phones use: of the interface that leads to other networks, if none was chosen."""
    host = bind
    if not bind or ip_address(bind).is_unspecified:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses an interface
                host = probe.getsockname()[0]
            except OSError:
                host = "127.0.0.1"
    return f"[{host}]" if ":" in host else host
