"""Webhooks: notify an operator once when the estimate of a round is as precise as requested."""

# The interval that is valid at every look decides (`anytime`). Each published estimate is compared with the goal, and
# the first one that reaches it is reported. So the reports choose the moment; an interval for one look assumes that it
# was chosen in advance.
#
# An event follows from a published estimate, is sent after it, and has only figures of it. So it says no more than the
# estimate about the moment of a report.
#
# The requests are those of https://www.standardwebhooks.com. An event is written to a file before it is sent, and
# marked there once the receiver has accepted it. So it is sent until it is accepted, and never again afterwards. If the
# answer is lost, it is sent again under the same id, by which a receiver recognises it.

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, Self

from hush_aggregator.count.tasks import stored_task
from hush_aggregator.estimate.estimates import ANYTIME, Interval, PartEstimate
from hush_aggregator.estimate.result import Result, encode
from hush_aggregator.http_deadline import Deadline
from hush_aggregator.logs import fields
from hush_aggregator.store.base import StoreReader
from hush_aggregator.store.location import StoreAddress, store_file
from hush_common.address import AddressParts, parse_address
from hush_common.aio import Backoff
from hush_common.broker_url import is_loopback, password_in
from hush_common.errors import OptionError
from hush_common.files import replace_file
from hush_common.formatting import typed
from hush_common.task import Task

URL_OPTION, SECRET_OPTION, GOAL_OPTION = "--notify", "--notify-secret-file", "--notify-precision"

REACHED = "precision.reached"
"""The type of an event."""

_LOG = logging.getLogger("hush.aggregator")
_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes of a secret, as Standard Webhooks requires
_MAKE = "make one with: echo whsec_$(openssl rand -base64 32)"
_ACCEPTED = range(200, 300)
_GONE = 410  # the receiver wants no more of it
_PATIENCE_S = 15.0
_FIRST_S, _LONGEST_S = 1.0, 3600.0
_URL_EXAMPLE = "write for example https://hooks.example/hush"


@dataclass(frozen=True, slots=True)
class PrecisionGoal:
    """When to notify: the interval that is valid at every look is at most `half_width` to either side of its middle.

    Args:
        text: as it was given.
        task: id of the task.
        part: name of a category or of a coordinate; empty for all of them, simultaneously.
        half_width: in the unit of the task; for shares a part of one.
        is_percent: whether it was given in per cent.
    """

    text: str
    task: str
    part: str
    half_width: float
    is_percent: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `TASK=VALUE`, `TASK=VALUE%` or `TASK:PART=VALUE`.

        Raises:
            OptionError: it is not valid.
        """
        name, _, value = text.rpartition("=")
        task, _, part = name.partition(":")
        is_percent = value.endswith("%")
        try:
            half_width = float(value.removesuffix("%"))
        except ValueError:
            half_width = math.nan
        if not task or not 0 < half_width < math.inf:
            raise OptionError(
                GOAL_OPTION,
                f"{text[:80]!r} is not TASK=VALUE; write for example heights=0.5 in the unit of the task, or smoke=2% "
                "for a share",
            )
        return cls(text, task, part, half_width / 100 if is_percent else half_width, is_percent)

    def problem(self, task: Task) -> str:
        """Why this task can never reach it, or always has; empty if neither."""
        parts = [part for part in task.domain.parts if not self.part or part.name == self.part]
        if not parts:
            return f"task {task.id} has no part of that name; leave it out, or name a category or a coordinate"
        if self.is_percent and not task.domain.is_share:
            return f"task {task.id} does not ask for a share; write the value in its unit, without %"
        widest = max(part.upper - part.lower for part in parts) / 2
        if self.half_width >= widest:
            return f"without any report it is known to ±{typed(widest)}; write a smaller value"
        return ""

    def reached_by(self, result: Result) -> tuple[PartEstimate, Interval] | None:
        """Return the part whose interval is the widest, and that interval; None if it is too wide or missing."""
        parts = [part for part in result.parts if not self.part or part.name == self.part]
        single = self.part or len(parts) == 1
        found = [(part, (part.intervals if single else part.joint_intervals).get(ANYTIME)) for part in parts]
        known = [(part, interval) for part, interval in found if interval is not None]
        if not known or len(known) < len(parts):
            return None
        widest = max(known, key=lambda one: one[1][1] - one[1][0])
        return widest if _half_width(widest[1]) <= self.half_width else None


def _half_width(interval: Interval) -> float:
    return (interval[1] - interval[0]) / 2


@dataclass(frozen=True, slots=True)
class NotifyEvent:
    """What is sent, byte for byte, under an id that is the same at every attempt and after every restart."""

    id: str
    task: str
    round: int
    body: bytes

    @classmethod
    def of(cls, goal: PrecisionGoal, result: Result, store: str) -> Self | None:
        """Return the event of a goal that a result of the store with this identity reaches, else None."""
        reached = goal.reached_by(result)
        if reached is None:
            return None
        part, interval = reached
        document = result.to_document()
        data: dict[str, object] = {
            name: document[name]
            for name in ("task", "digest", "round", "n", "confidence", "closed", "final")
            if name in document
        }
        data |= {"precision": goal.half_width, "half_width": _half_width(interval), "interval": list(interval)}
        data |= {"mean": part.mean, "unit": part.unit or result.task.unit, "part": part.name}
        known = {name: value for name, value in data.items() if value not in ("", None)}
        body = encode({"type": REACHED, "timestamp": document["updated_at"], "data": known})
        return cls(event_id(goal, result.task, result.round, store), result.task.id, result.round, body)


def event_id(goal: PrecisionGoal, task: Task, round_: int, store: str) -> str:
    """Return the id of an event: the same for the same store, task, round and goal, and random for anybody else."""
    key = json.dumps([store, task.digest.hex(), round_, goal.part, goal.half_width])
    return f"msg_{hashlib.sha256(key.encode()).hexdigest()[:32]}"


class EventFile:
    """The events of a store in a file next to it: those that wait, and the ids of those that were accepted.

    Raises:
        OptionError: the file cannot be read, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._waiting: dict[str, NotifyEvent] = {}
        self._done: dict[str, None] = {}
        try:
            document = json.loads(path.read_bytes())
            self._done = dict.fromkeys(map(str, document["done"]))
            events = (
                NotifyEvent(one["id"], one["task"], one["round"], one["body"].encode()) for one in document["waiting"]
            )
            self._waiting = {event.id: event for event in events}
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OptionError(URL_OPTION, f"{path} cannot be read ({error.strerror}); make it readable") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                URL_OPTION, f"{path} is damaged; remove it, after which events may be sent a second time"
            ) from error

    @property
    def waiting(self) -> list[NotifyEvent]:
        """The events that no receiver has accepted yet, in the order in which they were added."""
        return list(self._waiting.values())

    def __contains__(self, event: str) -> bool:
        return event in self._done or event in self._waiting

    def add(self, event: NotifyEvent) -> None:
        """Note an event that is to be sent; an OSError if that cannot be written."""
        with self._turn:
            self._write({**self._waiting, event.id: event}, self._done)

    def finish(self, event: NotifyEvent) -> None:
        """Note that an event is never sent again; an OSError if that cannot be written."""
        with self._turn:
            waiting = {name: one for name, one in self._waiting.items() if name != event.id}
            self._write(waiting, {**self._done, event.id: None})

    def _write(self, waiting: dict[str, NotifyEvent], done: dict[str, None]) -> None:
        rows = [
            {"id": one.id, "task": one.task, "round": one.round, "body": one.body.decode()} for one in waiting.values()
        ]
        replace_file(self._path, encode({"v": 1, "waiting": rows, "done": list(done)}))
        self._waiting, self._done = waiting, done


def event_file(store: Path) -> Path:
    """Where the events of a store are."""
    return store.with_name(f"{store.name}.notify")


class Webhook:
    """A receiver of events, and the secret that signs them. The address is never printed: it may contain a token.

    Args:
        url: `https://…`, or `http://…` on this machine.
        secret_file: its first line is `whsec_` and 24 to 64 bytes in base64.

    Raises:
        OptionError: one of them cannot be used.
    """

    def __init__(self, url: str, secret_file: Path) -> None:
        self._parts = _parts(url)
        self._key = _key(secret_file)

    def __str__(self) -> str:
        port = "" if self._parts.port is None else f":{self._parts.port}"
        host = self._parts.host
        return f"{self._parts.scheme}://{f'[{host}]' if ':' in host else host}{port}/…"

    def headers(self, event: NotifyEvent, now: int) -> dict[str, str]:
        """Return the headers of a request at this moment, in seconds since 1970."""
        signed = b"%b.%d.%b" % (event.id.encode(), now, event.body)
        signature = base64.b64encode(hmac.digest(self._key, signed, "sha256")).decode()
        return {
            "Content-Type": "application/json",
            "User-Agent": f"hush/{version('hush-ldp')}",
            "webhook-id": event.id,
            "webhook-timestamp": str(now),
            "webhook-signature": f"v1,{signature}",
        }

    def post(self, event: NotifyEvent) -> int:
        """Send an event; return the status of the answer. Blocks.

        Raises:
            OSError: the receiver cannot be reached.
            HTTPException: it does not speak HTTP.
        """
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.host, self._parts.port, timeout=_PATIENCE_S)
        try:
            path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
            headers = self.headers(event, int(time.time()))

            def post() -> int:
                connection.request("POST", path, event.body, headers)
                return connection.getresponse().status

            return Deadline(connection, _PATIENCE_S).within(post)
        finally:
            connection.close()


def _parts(url: str) -> AddressParts:
    try:
        parts = parse_address(url)
    except ValueError:
        parts = AddressParts("")
    login = parts.user is not None or parts.password is not None
    if parts.scheme not in ("http", "https") or not parts.host or not url.isascii() or login:
        raise OptionError(
            URL_OPTION, f"is not the address of a webhook, or has a space, a # or a login; {_URL_EXAMPLE}"
        )
    if parts.scheme == "http" and not is_loopback(parts.host):
        raise OptionError(URL_OPTION, "anyone on the way could read and hold back what goes over http://; use https://")
    return parts


def _key(file: Path) -> bytes:
    text = password_in(file, SECRET_OPTION)
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise OptionError(
            SECRET_OPTION,
            f"{file}: the first line is not {_PREFIX} and {_SHORTEST} to {_LONGEST} bytes in base64; {_MAKE}",
        )
    return key


Poster = Callable[[NotifyEvent], int]
"""Sends an event and returns the status, as `Webhook.post`."""


class Notifier:
    """Compares each published estimate with the goals, and sends an event when one is reached.

    Args:
        goals: when to notify.
        events: what was sent and what waits.
        webhook: where to send.
        store: the public identity of the store.
        post: sends an event; by default over HTTP.
    """

    def __init__(
        self,
        goals: Sequence[PrecisionGoal],
        events: EventFile,
        webhook: Webhook,
        store: str,
        *,
        post: Poster | None = None,
    ) -> None:
        self._goals: dict[str, list[PrecisionGoal]] = {}
        for goal in goals:
            self._goals.setdefault(goal.task, []).append(goal)
        self._events = events
        self._webhook = webhook
        self._store = store
        self._post = post or webhook.post
        self._new: dict[str, NotifyEvent] = {}  # reached, and not in the file yet
        self._wake_writer, self._wake_sender = asyncio.Event(), asyncio.Event()
        self._told: set[str] = set()

    @property
    def waiting(self) -> int:
        """How many events no receiver has accepted yet."""
        return len(self._new) + len(self._events.waiting)

    def published(self, result: Result) -> None:
        """Note that an estimate was published. Returns at once, in the event loop."""
        for goal in self._goals.get(result.task.id, ()):
            problem = goal.problem(result.task)
            if problem:
                self._tell_once(goal, problem)
                continue
            name = event_id(goal, result.task, result.round, self._store)
            if name in self._new or name in self._events:
                continue
            event = NotifyEvent.of(goal, result, self._store)
            if event is not None:
                self._new[name] = event
                self._wake_writer.set()

    async def run(self) -> NoReturn:
        """Write and send events until cancelled. Raises nothing else: the intake does not depend on a receiver."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write(), name="hush-notify-write")
            group.create_task(self._send(), name="hush-notify-send")
        raise AssertionError  # neither ends

    async def _write(self) -> NoReturn:
        backoff = Backoff(_FIRST_S, _LONGEST_S)
        while True:
            await self._wake_writer.wait()
            self._wake_writer.clear()
            while self._new:
                name, event = next(iter(self._new.items()))
                if await self._note(self._events.add, event, backoff):
                    del self._new[name]
                    self._wake_sender.set()

    async def _send(self) -> NoReturn:
        backoff = Backoff(_FIRST_S, _LONGEST_S)
        while True:
            self._wake_sender.clear()
            for event in self._events.waiting:
                await self._try(event, backoff)
            with suppress(TimeoutError):  # a new event does not wait for the next attempt of an old one
                async with asyncio.timeout(backoff.next() if self._events.waiting else None):
                    await self._wake_sender.wait()

    async def _try(self, event: NotifyEvent, backoff: Backoff) -> None:
        """Send an event; if that is the end of it, note it."""
        try:
            status = await _in_daemon_thread(self._post, event)
            why = "" if status in _ACCEPTED else f"it answers {status}"
        except (OSError, HTTPException, ValueError) as error:
            status, why = 0, getattr(error, "strerror", None) or type(error).__name__
        if why and status != _GONE:
            if backoff.longest or "send" not in self._told:
                self._told.add("send")
                self._log(logging.WARNING, event, f"is not accepted ({why}); trying again until it is")
            return
        backoff.reset()
        self._told.discard("send")
        self._log(logging.INFO, event, "is refused permanently (410)" if why else "is accepted")
        while not await self._note(self._events.finish, event, backoff):
            pass

    def _log(self, level: int, event: NotifyEvent, what: str) -> None:
        """Log at the turn of the minute, as everything that follows from reports."""
        said = fields("notified", held=True, task=event.task, round=event.round)
        _LOG.log(
            level, "%s: the event of task %s, round %d, %s", self._webhook, event.task, event.round, what, extra=said
        )

    async def _note(self, write: Callable[[NotifyEvent], None], event: NotifyEvent, backoff: Backoff) -> bool:
        """Write to the file; after a failure wait. Return whether it is written."""
        try:
            await asyncio.to_thread(write, event)
        except OSError as error:
            if "write" not in self._told:
                self._told.add("write")
                _LOG.warning(
                    "the events of %s cannot be written (%s): they are sent once they can be; free some space",
                    URL_OPTION,
                    error.strerror,
                    extra=fields("notify_failed", held=True),
                )
            await asyncio.sleep(backoff.next())
            return False
        self._told.discard("write")
        backoff.reset()
        return True

    def _tell_once(self, goal: PrecisionGoal, problem: str) -> None:
        if goal.text not in self._told:
            self._told.add(goal.text)
            _LOG.error("%s %s: %s", GOAL_OPTION, goal.text, problem, extra=fields("notify_goal", task=goal.task))


async def _in_daemon_thread(call: Poster, event: NotifyEvent) -> int:
    """Call in a thread that the end of the process does not wait for, as it would for `asyncio.to_thread`."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[int] = loop.create_future()

    def settle(status: int, error: Exception | None) -> None:
        if answered.cancelled():
            return
        if error is None:
            answered.set_result(status)
        else:
            answered.set_exception(error)

    def run() -> None:
        status, error = 0, None
        try:
            status = call(event)
        except Exception as raised:  # noqa: BLE001 - raised in the event loop
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, status, error)

    threading.Thread(target=run, daemon=True, name="hush-notify").start()
    return await answered


def notifier_of(
    url: str,
    secret_file: Path | None,
    goals: Sequence[str],
    address: StoreAddress,
    store: StoreReader,
    *,
    tasks: Iterable[Task] = (),
) -> Notifier | None:
    """Return the notifier of the options of `hush serve`; None without them.

    Args:
        url: of the webhook.
        secret_file: with its secret.
        goals: each `TASK=VALUE`.
        address: of the store.
        store: with the tasks of before.
        tasks: those that are given.

    Raises:
        OptionError: they cannot be used, or not together.
        StoreError: a stored task cannot be read.
    """
    if not url:
        for option, given in ((SECRET_OPTION, secret_file), (GOAL_OPTION, goals)):
            if given:
                raise OptionError(option, f"is about a webhook; give its address with {URL_OPTION}, or leave this out")
        return None
    if secret_file is None:
        raise OptionError(URL_OPTION, f"needs the secret that signs its events; name its file with {SECRET_OPTION}")
    if not goals:
        raise OptionError(URL_OPTION, f"needs a precision; give for example {GOAL_OPTION} heights=0.5")
    path = store_file(address, f"{URL_OPTION} keeps its events next to a file; use a store in SQLite, or leave it out")
    webhook = Webhook(url, secret_file)
    known = {task.id: task for task in tasks}
    parsed = [PrecisionGoal.parse(text) for text in goals]
    for goal in parsed:
        payload = None if goal.task in known else store.task(goal.task)
        task = known.get(goal.task) if payload is None else stored_task(payload)
        problem = "" if task is None else goal.problem(task)
        if problem:
            raise OptionError(GOAL_OPTION, f"{goal.text[:80]!r}: {problem}")
    return Notifier(parsed, EventFile(event_file(path)), webhook, store.public_identity)
