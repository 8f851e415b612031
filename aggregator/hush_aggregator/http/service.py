"""Service: what is served over HTTP, and to whom. Routers reach it as a dependency."""

import asyncio
import hmac
import json
import os
import re
import stat
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, TypeVarTuple, Unpack, cast

from fastapi import Depends, Request, Response

from hush_aggregator.estimation import Estimator, InThread
from hush_aggregator.http.client_address import Network
from hush_aggregator.intake.progress import IntakeStatus
from hush_aggregator.metrics import Figures
from hush_aggregator.result import Counted, Result, encode, result_of
from hush_aggregator.result_reader import read_round, utc_now
from hush_aggregator.store import SqliteReader
from hush_aggregator.store.base import StoreReader
from hush_aggregator.tasks.known import stored_task
from hush_common.errors import OptionError, StoreError, printable
from hush_common.task import Task

PROBLEM = "application/problem+json"
"""The media type of a problem."""

PROBLEMS_PATH = "/v1/problems"
"""Where a service lists the kinds of problems. The `type` of a problem is this path and the name of its kind."""


class Kind(Enum):
    """The kinds of problems: a name, which never changes, a status, and a title.

    A program tells problems apart by `type`. Several kinds can have one status.
    """

    NOT_HTTP = "not-http", 400, "The request is not HTTP/1.1"
    TOKEN_MISSING = "token-missing", 401, "The request needs the token of the service"
    TOKEN_WRONG = "token-wrong", 401, "The token is not that of the service"
    NO_TOKEN_SET = "no-token-set", 403, "The service was started without a token"
    READ_ONLY = "read-only", 403, "The service only reads"
    OTHER_ORIGIN = "other-origin", 403, "The request comes from a page of another place"
    UNKNOWN_PATH = "unknown-path", 404, "The service has no such path"
    UNKNOWN_TASK = "unknown-task", 404, "The store has no such task"
    UNKNOWN_ROUND = "unknown-round", 404, "The task has no such round"
    WRONG_METHOD = "wrong-method", 405, "The path does not take this method"
    TASK_EXISTS = "task-exists", 409, "Another task has this id"
    TASK_CLOSED = "task-closed", 409, "The task is closed"
    BODY_TOO_LONG = "body-too-long", 413, "The body is too long"
    WRONG_MEDIA_TYPE = "wrong-media-type", 415, "The body has another media type"
    UNKNOWN_HOST = "unknown-host", 421, "Host does not name this service"
    INVALID_TASK = "invalid-task", 422, "The body is not a valid task"
    INVALID_PARAMETER = "invalid-parameter", 422, "A parameter is not valid"
    OVER_SHARE = "over-share", 429, "The address has used up its share"
    HEAD_TOO_LARGE = "head-too-large", 431, "The head of the request is too large"
    INTERNAL = "internal", 500, "The service has an error of its own"
    NO_PARQUET = "no-parquet", 501, "The service cannot write Parquet"
    STORE_UNAVAILABLE = "store-unavailable", 503, "The store cannot be read"
    BROKER_UNAVAILABLE = "broker-unavailable", 503, "The aggregator is not connected to its broker"
    TOO_MANY_REQUESTS = "too-many-requests", 503, "Too many requests are under way"
    TOO_MANY_STREAMS = "too-many-streams", 503, "Too many streams of events are open"
    TOO_MANY_EXPORTS = "too-many-exports", 503, "Too many exports are under way"
    TOO_SLOW = "too-slow", 503, "The answer took too long"

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.slug: str = slug
        self.status: int = status
        self.title: str = title

    @property
    def type(self) -> str:
        """The URI reference in a problem document."""
        return f"{PROBLEMS_PATH}#{self.slug}"


class ProblemError(Exception):
    """A request that the service refuses or cannot answer.

    Args:
        kind: of the problem.
        detail: what is wrong, and what to do.
        headers: further headers of the answer.
        members: further members of the document.
    """

    def __init__(
        self, kind: Kind, detail: str, *, headers: dict[str, str] | None = None, members: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers: dict[str, str] = headers or {}
        self.members: dict[str, str] = members or {}

    @property
    def answer(self) -> Response:
        """The answer with the problem document."""
        return problem(self.kind, self.detail, headers=self.headers, members=self.members)


def problem(
    kind: Kind | HTTPStatus,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    members: dict[str, str] | None = None,
) -> Response:
    """Return the answer with a problem document: see `ProblemError`. A mere status has the type `about:blank`."""
    if isinstance(kind, Kind):
        about: dict[str, object] = {"type": kind.type, "title": kind.title, "status": kind.status}
    else:
        about = {"type": "about:blank", "title": kind.phrase, "status": int(kind)}
    document = {**about, "detail": printable(detail), **(members or {})}
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    status = kind.status if isinstance(kind, Kind) else int(kind)
    return Response(body, status, headers, PROBLEM)


JSON = "application/json"
"""The media type of an answer."""


def answer(document: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The bytes of a document: keys sorted, no spaces, as what is retained at a broker."""
    return Response(encode(document), status, headers, JSON)


TOKEN_VARIABLE = "HUSH_HTTP_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST = 32
_LONGEST = 512
_FEWEST = 6  # signs that differ: 32 random decimal digits have fewer once in 10^7 times
_SIGNS = re.compile(r"[A-Za-z0-9._~+/=-]+")  # those of a bearer token (RFC 6750)
_MAKE = "make one with: openssl rand -hex 32"


class Token:
    """A token, of which the hash is kept. No text of it shows anything.

    Args:
        text: at least 32 letters, digits and `. _ ~ + / = -`.

    Raises:
        ValueError: it is too short, too long, has other signs, or repeats itself. The message does not repeat it.
    """

    __slots__ = ("_hash",)

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise ValueError(f"is shorter than {_SHORTEST} letters; {_MAKE}")
        if len(text) > _LONGEST or not _SIGNS.fullmatch(text):
            raise ValueError(f"is not made of at most {_LONGEST} letters, digits and . _ ~ + / = -; {_MAKE}")
        if len(set(text)) < _FEWEST or _repeats(text):
            raise ValueError(f"repeats itself, so that it can be guessed; {_MAKE}")
        self._hash = sha256(text.encode()).digest()

    def fits(self, text: str) -> bool:
        """Whether `text` is the token, in a time that says nothing about it."""
        return hmac.compare_digest(self._hash, sha256(text.encode("utf-8", "surrogatepass")).digest())

    def __repr__(self) -> str:
        return "Token(…)"


def _repeats(text: str) -> bool:
    """Whether a part of it, of at most half its length, comes again and again until its end."""
    return any(text.startswith(text[period:]) for period in range(1, len(text) // 2 + 1))


def find_token(option: str, file: Path | None, environment: Mapping[str, str]) -> Token | None:
    """The token in the first line of a file or, without one, in the environment; None if it is in neither.

    Args:
        option: of the command line that names the file, for messages.
        file: the file.
        environment: where the variable `HUSH_HTTP_TOKEN` is looked for.

    Raises:
        OptionError: the file cannot be read, others can read it too, or what is there is no token.
    """
    if file is None:
        text, name = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not text:
            return None
    else:
        text, name = _first_line(option, file), option
    try:
        return Token(text)
    except ValueError as error:
        raise OptionError(name, f"the token {'' if file is None else f'in {file} '}{error}") from None


def _first_line(option: str, file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            if sys.platform != "win32" and _is_open_to_others(os.fstat(opened.fileno())):
                raise OptionError(option, f"others can read {file} too; run: chmod 600 {file}")
            return opened.readline(_LONGEST + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file with the token") from error


def _is_open_to_others(found: os.stat_result) -> bool:
    """Whether others than the owner can read or change it. What a service manager hands over is root's, by a group."""
    mine = found.st_uid == os.geteuid()
    return bool(found.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if mine else stat.S_IWGRP)))


_RETRY = {"Retry-After": "5"}


class Places:
    """A bounded number of things at the same time.

    Args:
        most: how many.
        kind: of the problem when all places are taken.
        detail: of the same problem.
        share: how many of them one address can take; None for all.
        what: they are, for the message about a share.
    """

    def __init__(self, most: int, kind: Kind, detail: str, *, share: int | None = None, what: str = "") -> None:
        self._most = most
        self._kind = kind
        self._detail = detail
        self._share = share
        self._what = what
        self._taken: Counter[str] = Counter()

    def take(self, who: str = "") -> None:
        """Take one.

        Raises:
            ProblemError: none is free, or `who` has its share.
        """
        if self._share is not None and self._taken[who] >= self._share:
            detail = f"{self._share} {self._what} of this address are under way, which is its share; ask again later"
            raise ProblemError(Kind.OVER_SHARE, detail, headers=_RETRY)
        if self._taken.total() >= self._most:
            raise ProblemError(self._kind, self._detail, headers=_RETRY)
        self._taken[who] += 1

    def leave(self, who: str = "") -> None:
        """Give one back."""
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AT_ONCE = 2  # estimates that are made at the same time, whoever asks
_ASIDE = 2  # threads for what takes long: exports, and writing
_KEPT = 2048  # results that are remembered: those of a thousand tasks, and of some of their rounds


class Reading:
    """The store of a service. Its reads run one after the other, in a thread of their own.

    Args:
        store: the file.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates; None for threads.

    Attributes:
        path: the file.
        exports: places of those that are under way at the same time.
    """

    def __init__(self, store: Path, confidence: float = 0.95, estimator: Estimator | None = None) -> None:
        self.path: Path = store
        self.confidence: float = confidence
        self._estimator = estimator or InThread()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hush-http-store")
        self._aside = ThreadPoolExecutor(_ASIDE, thread_name_prefix="hush-http-aside")
        self.exports: Places = Places(_ASIDE, Kind.TOO_MANY_EXPORTS, "other exports are under way; ask again later")
        self._opened: SqliteReader | None = None
        self._file: tuple[int, int] | None = None
        self._tasks: OrderedDict[bytes, Task] = OrderedDict()  # by digest: a task never changes
        self._results: OrderedDict[tuple[bytes, int], tuple[Counted, Result]] = OrderedDict()
        self.on_result: Callable[[Result], object] = lambda _: None
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._making: dict[tuple[bytes, int], asyncio.Lock] = {}

    async def run(self, function: Callable[[StoreReader], T]) -> T:
        """What `function` returns of the store, called in its thread: keep it short, others wait for it.

        Raises:
            StoreError: the store is not there or cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._with_store, function)

    async def aside(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Call what blocks for longer in another thread: not that of the reads, nor one that estimates need."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, function, *args)

    async def result(self, task: Task, round_: int | None = None) -> Result:
        """The result of a round, by default of the latest that has a report, from what is committed now.

        It is made once for what is counted, however often it is asked for. If it fails, `failures` says so.

        Raises:
            StoreError: the store is not there or cannot be read.
        """
        counted = await self.run(lambda store: read_round(store, task, round_, utc_now()))
        key = task.digest, counted.round
        lock = self._making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                there = self._results.get(key)
                if there is not None and there[0] == counted:
                    self._results.move_to_end(key)
                    return there[1]
                async with self._turn:
                    made = await self._estimator(task, counted.tally, self.confidence)
                result = result_of(counted, made, self.confidence, utc_now())
                self._results[key] = counted, result
                self.on_result(result)
                while len(self._results) > _KEPT:
                    self._results.popitem(last=False)
                return result
        finally:
            if not lock.locked() and self._making.get(key) is lock:
                del self._making[key]

    def task(self, digest: bytes, payload: bytes) -> Task:
        """The task that is stored as `payload`; in any thread.

        Raises:
            StoreError: this version cannot read it.
        """
        known = self._tasks.get(digest)
        if known is None:
            known = self._tasks[digest] = stored_task(payload)
            while len(self._tasks) > _KEPT:
                with suppress(KeyError):  # another thread was faster
                    self._tasks.popitem(last=False)
        return known

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._close)
        self._worker.shutdown()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def _with_store(self, function: Callable[[StoreReader], T]) -> T:
        return function(self._there())

    def _there(self) -> SqliteReader:
        try:
            found = self.path.stat()
            file = found.st_dev, found.st_ino
        except OSError:
            file = None
        if self._opened is None or file != self._file:
            self._close()
            self._opened = SqliteReader(self.path)  # names what is wrong where the file is missing
            self._file = file
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            with suppress(StoreError):
                self._opened.close()
            self._opened = None


LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names under which a program of the same machine is asked."""


class Live(Protocol):
    """The aggregator that runs in the same process."""

    def figures(self) -> Figures:
        """What its metrics say now; to be asked in the event loop."""
        ...

    @property
    def intake(self) -> IntakeStatus:
        """The state of its intake; to be read in the event loop."""
        ...

    @property
    def task_limit(self) -> str:
        """Why published tasks are not counted for lack of room; empty if none is."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """What is served, and to whom.

    Args:
        store: the file of the store; it may be missing, and come later.
        hosts: names that a request may ask for (its `Host`), in small letters, without a port.
        any_address: whether it may also ask for any address, as where all interfaces are listened on.
        token: what writing and single reports need; None where nobody may do either.
        write: whether tasks may be given, withdrawn and closed.
        guarded: whether reading needs the token too.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates; None for threads.
        live: the aggregator beside it; None where there is none.
        trusted_proxies: addresses of proxies, of whose requests the forwarded address counts.
    """

    store: Path
    hosts: frozenset[str] = LOOPBACK
    any_address: bool = False
    token: Token | None = field(default=None, repr=False)
    write: bool = False
    guarded: bool = False
    confidence: float = 0.95
    estimator: Estimator | None = None
    live: Live | None = None
    trusted_proxies: tuple[Network, ...] = ()


# Without `async`, FastAPI would call these in a thread for each request, which keeps its place meanwhile: requests
# that are refused without a token would then use up the share of their address.
async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _reading(request: Request) -> Reading:
    return cast("Reading", request.app.state.reading)


Served = Annotated[Service, Depends(_service)]
"""In the parameters of an endpoint: the service."""

Opened = Annotated[Reading, Depends(_reading)]
"""In the parameters of an endpoint: its store."""
