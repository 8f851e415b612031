"""What is served over HTTP and to whom: problem documents, tokens, limits, and the store."""

import asyncio
import hmac
import json
import os
import re
import stat
import sys
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, TypeVarTuple, Unpack, cast

from fastapi import Depends, Request, Response

from hush_aggregator.count.intake import IntakeStatus
from hush_aggregator.count.tasks import stored_task
from hush_aggregator.estimate import Estimate
from hush_aggregator.estimate.process import Estimator, Failure, ThreadEstimator
from hush_aggregator.estimate.result import Result, RoundCounts, encode, result_of, utc_now
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.ops.metrics import MetricValues
from hush_aggregator.publish.results import read_round
from hush_aggregator.store.base import OpenedStore, StoreReader
from hush_aggregator.store.location import StoreAddress, open_reader
from hush_aggregator.web.audit import AuditLog
from hush_aggregator.web.client_address import Network
from hush_common.errors import OptionError, StoreError, printable
from hush_common.task import Task

PROBLEM = "application/problem+json"
"""The media type of a problem."""

PROBLEMS_PATH = "/v1/problems"
"""Where a service lists the kinds of problems. The `type` of a problem is this path and the name of its kind."""


class ProblemType(Enum):
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
    INTERNAL = "internal", 500, "The service has an internal error"
    NO_PARQUET = "no-parquet", 501, "The service cannot write Parquet"
    STORE_UNAVAILABLE = "store-unavailable", 503, "The store cannot be read"
    NO_AUDIT = "no-audit", 503, "The audit log cannot be written"
    INTAKE_SILENT = "intake-silent", 503, "The aggregator does not answer"
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
    """A request that the service refuses or cannot answer, with further headers and members of the document.

    The detail says what is wrong, and what to do. A plain status has the type `about:blank`.
    """

    def __init__(
        self,
        kind: ProblemType | HTTPStatus,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = headers
        self.members: Mapping[str, str] = members or {}

    @property
    def answer(self) -> Response:
        """The response with the problem document."""
        if isinstance(self.kind, ProblemType):
            type_, title, status = self.kind.type, self.kind.title, self.kind.status
        else:
            type_, title, status = "about:blank", self.kind.phrase, int(self.kind)
        about: dict[str, object] = {"type": type_, "title": title, "status": status, "detail": printable(self.detail)}
        body = json.dumps(about | dict(self.members), ensure_ascii=False).encode("utf-8", "backslashreplace")
        return Response(body, status, self.headers, PROBLEM)


JSON = "application/json"
"""The media type of an answer."""


def answer(document: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON document: keys sorted, no spaces, as in retained messages."""
    return Response(encode(document), status, headers, JSON)


TOKEN_VARIABLE = "HUSH_HTTP_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST = 32
_LONGEST = 512
_FEWEST = 6  # different characters: 32 random decimal digits have fewer once in 10^7 times
_CHARACTERS = re.compile(r"[A-Za-z0-9._~+/=-]+")  # those of a bearer token (RFC 6750)
_MAKE = "make one with: openssl rand -hex 32"


class Token:
    """A bearer token. Only its hash is stored, so that no log or traceback can show it.

    It raises a ValueError if the text is too short, too long, has other characters, or repeats itself.
    """

    __slots__ = ("_hash",)

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise ValueError(f"is shorter than {_SHORTEST} letters; {_MAKE}")
        if len(text) > _LONGEST or not _CHARACTERS.fullmatch(text):
            raise ValueError(f"is not made of at most {_LONGEST} letters, digits and . _ ~ + / = -; {_MAKE}")
        if len(set(text)) < _FEWEST or _repeats(text):
            raise ValueError(f"repeats itself, so that it can be guessed; {_MAKE}")
        self._hash = sha256(text.encode()).digest()

    def fits(self, text: str) -> bool:
        """Whether `text` is the token, compared in constant time."""
        return hmac.compare_digest(self._hash, sha256(text.encode("utf-8", "surrogatepass")).digest())

    def is_same(self, other: "Token") -> bool:
        """Whether both were made of the same text."""
        return hmac.compare_digest(self._hash, other._hash)  # noqa: SLF001 - of the same class

    def __repr__(self) -> str:
        return "Token(…)"


def _repeats(text: str) -> bool:
    """Whether the text is a repetition of a part of at most half its length."""
    return any(text.startswith(text[period:]) for period in range(1, len(text) // 2 + 1))


def find_token(option: str, file: Path | None, environment: Mapping[str, str]) -> Token | None:
    """Return the token in the first line of a file or, without a file, in the environment; None if neither has one.

    It raises an OptionError if the file cannot be read, other users can read it, or its token is invalid.
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


def find_administrators(option: str, file: Path | None) -> tuple[tuple[str, Token], ...]:
    """Return the names and tokens in a file, a line each: `NAME TOKEN`.

    It raises an OptionError as `find_token` does, or if a name or a token is there twice, and repeats no part of the
    file.
    """
    found: list[tuple[str, Token]] = []
    known = set[str]()
    for number, line in enumerate([] if file is None else _lines(option, file), 1):
        name, _, text = line.partition(" ")
        if not text or not _ADMINISTRATOR.fullmatch(name):
            raise OptionError(option, f"a line of {file} is not NAME TOKEN; write for example: anna 4f…")
        if {name, text} & known:
            raise OptionError(option, f"{file} has a name or a token twice; give each administrator their own")
        known |= {name, text}
        try:
            found.append((name, Token(text.strip())))
        except ValueError as error:
            raise OptionError(option, f"the token in line {number} of {file} {error}") from None
    if file is not None and not found:
        raise OptionError(option, f"{file} has no line NAME TOKEN; write for example: anna 4f…")
    return tuple(found)


_ADMINISTRATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def _first_line(option: str, file: Path) -> str:
    return next(iter(_lines(option, file, 1)), "")


def _lines(option: str, file: Path, most: int = 1000) -> list[str]:
    try:
        with file.open(encoding="utf-8") as opened:
            if sys.platform != "win32" and _is_open_to_others(os.fstat(opened.fileno())):
                raise OptionError(option, f"others can read {file} too; run: chmod 600 {file}")
            lines = [opened.readline(_LONGEST + 100).rstrip("\r\n") for _ in range(most)]
            return lines if most == 1 else [line for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file with the token") from error


def _is_open_to_others(found: os.stat_result) -> bool:
    """Whether others than the owner can read or change it. What a service manager hands over is root's, by a group."""
    mine = found.st_uid == os.geteuid()
    return bool(found.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if mine else stat.S_IWGRP)))


_RETRY = {"Retry-After": "5"}


class ConcurrencyLimit:
    """A limit on concurrent uses, and on the `share` of them that one address may have; `what` is for its message."""

    def __init__(self, most: int, kind: ProblemType, detail: str, *, share: int | None = None, what: str = "") -> None:
        self._most = most
        self._kind = kind
        self._detail = detail
        self._share = share
        self._what = what
        self._used: Counter[str] = Counter()

    def acquire(self, address: str = "") -> None:
        """Count one more use; raise a ProblemError if the limit or the share of the address is reached."""
        if self._share is not None and self._used[address] >= self._share:
            detail = f"{self._share} {self._what} of this address are under way, which is its share; try again later"
            raise ProblemError(ProblemType.OVER_SHARE, detail, headers=_RETRY)
        if self._used.total() >= self._most:
            raise ProblemError(self._kind, self._detail, headers=_RETRY)
        self._used[address] += 1

    def release(self, address: str = "") -> None:
        """Count one use less."""
        self._used[address] -= 1
        if not self._used[address]:
            del self._used[address]


T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SHORT_S = 0.25  # an estimate that takes longer does not delay the next one
_SLOW_THREADS = 2  # for exports and writing
_CACHED = 2048  # results: of a thousand tasks, and of some of their rounds


@dataclass(slots=True)
class _Calculated:
    """A result, what it was calculated from, and its document once somebody has asked for it."""

    counted: RoundCounts
    result: Result
    document: bytes = b""


@dataclass(slots=True)
class _Turn:
    """Callers that take turns, and the last result of one of them, with the number of its beginning."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0
    began: int = 0
    result: Result | None = None


K = TypeVar("K", tuple[bytes, int | None], tuple[bytes, int])


@asynccontextmanager
async def _in_turn(turns: dict[K, _Turn], key: K) -> AsyncIterator[_Turn]:
    """Run the block after those of earlier callers with the same key. The last caller leaves nothing behind."""
    turn = turns.setdefault(key, _Turn())
    turn.callers += 1
    try:
        async with turn.lock:
            yield turn
    finally:
        turn.callers -= 1
        if not turn.callers:
            del turns[key]


class StoreService:
    """The store of a service. One thread reads it.

    It is opened at the first use, and again when another file is in its place: a store may be created after the
    service starts, and be restored from a backup while it runs. A result is calculated once for what is counted.
    """

    def __init__(self, store: StoreAddress, confidence: float = 0.95, estimator: Estimator | None = None) -> None:
        self.address: StoreAddress = store
        self.confidence: float = confidence
        self._estimator = estimator or ThreadEstimator()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hush-http-store")
        self._slow = ThreadPoolExecutor(_SLOW_THREADS, thread_name_prefix="hush-http-slow")
        self.exports: ConcurrencyLimit = ConcurrencyLimit(
            _SLOW_THREADS, ProblemType.TOO_MANY_EXPORTS, "other exports are under way; try again later"
        )
        self._opened: OpenedStore | None = None
        self._file: tuple[int, int] | None = None
        self._tasks: OrderedDict[bytes, Task] = OrderedDict()  # by digest: a task never changes
        self._results: OrderedDict[tuple[bytes, int], _Calculated] = OrderedDict()
        self._next = asyncio.Lock()  # of the estimate that other estimates wait for
        self._has_slow = False  # whether one is being made that they do not wait for
        self._order = count()
        self._asking: dict[tuple[bytes, int | None], _Turn] = {}
        self._making: dict[tuple[bytes, int], _Turn] = {}

    async def run(self, function: Callable[[StoreReader], T]) -> T:
        """Call a function with the store in its thread; StoreError if it cannot be read. Other reads wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._with_store, function)

    async def run_slow(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Call a slow function in a thread that neither reads nor estimates use."""
        return await asyncio.get_running_loop().run_in_executor(self._slow, function, *args)

    async def result(self, task: Task, round_: int | None = None) -> Result:
        """Return the result of a round, by default the latest that has a report, from what is committed now.

        Concurrent calls share one calculation: a call that waits takes the result of a read that began after the call,
        so that there is one estimate at a time however many ask while reports arrive. If the estimate fails,
        `failures` has the reason.

        Raises:
            StoreError: the store is missing or cannot be read.
        """
        asked = next(self._order)
        async with _in_turn(self._asking, (task.digest, round_)) as turn:
            if turn.result is None or turn.began < asked:
                turn.began = next(self._order)
                counted = await self.run(lambda store: read_round(store, task, round_, utc_now()))
                turn.result = await self._calculated(counted)
            return turn.result

    async def _calculated(self, counted: RoundCounts) -> Result:
        """Return the result for what is counted, calculated once."""
        task = counted.task
        key = task.digest, counted.round
        async with _in_turn(self._making, key):
            there = self._results.get(key)
            if there is not None and there.counted == counted:
                self._results.move_to_end(key)
                return there.result
            made = await self._estimated(task, counted.tally)
            result = result_of(counted, made, self.confidence, utc_now())
            self._results[key] = _Calculated(counted, result)
            while len(self._results) > _CACHED:
                self._results.popitem(last=False)
            return result

    async def prepare(self) -> None:
        """Return when an estimate could begin at once."""
        async with self._next:
            await self._estimator.prepare()

    async def _estimated(self, task: Task, tally: Tally) -> Estimate | Failure:
        """Return an estimate. The next one begins once it is made; or earlier, at most one at a time, if it is slow.

        Two at the same time need two processes. To start one takes as long as hundreds of estimates.
        """
        await self._next.acquire()
        is_slow = False
        try:
            await self._estimator.prepare()
            making = asyncio.ensure_future(self._estimator(task, tally, self.confidence))
            try:
                await asyncio.wait({making}, timeout=_SHORT_S)
                if not (making.done() or self._has_slow):
                    is_slow = self._has_slow = True
                    self._next.release()
                return await making
            finally:
                making.cancel()
        finally:
            if is_slow:
                self._has_slow = False
            else:
                self._next.release()

    def known(self, counted: RoundCounts) -> Result | None:
        """Return the result for what is counted, if it was calculated before."""
        there = self._results.get((counted.task.digest, counted.round))
        return there.result if there is not None and there.counted == counted else None

    def last_known(self, counted: RoundCounts) -> Result | None:
        """Return the last result of a round in the same state, which may lack the newest reports."""
        there = self._results.get((counted.task.digest, counted.round))
        if there is None or (there.counted.closed, there.counted.final) != (counted.closed, counted.final):
            return None
        return there.result

    def document(self, result: Result) -> bytes:
        """Return the JSON document of a result, written once."""
        there = self._results.get((result.task.digest, result.round))
        if there is None or there.result is not result:  # it is not the newest any more
            return encode(result.to_document())
        there.document = there.document or encode(result.to_document())
        return there.document

    def task(self, digest: bytes, payload: bytes) -> Task:
        """Return the task that is stored as `payload`; StoreError if this version cannot read it. Thread-safe."""
        known = self._tasks.get(digest)
        if known is None:
            known = self._tasks[digest] = stored_task(payload)
            while len(self._tasks) > _CACHED:
                with suppress(KeyError):  # another thread was faster
                    self._tasks.popitem(last=False)
        return known

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._close)
        self._worker.shutdown()
        self._slow.shutdown(wait=False, cancel_futures=True)

    def _with_store(self, function: Callable[[StoreReader], T]) -> T:
        file = None
        if isinstance(self.address, Path):
            with suppress(OSError):
                found = self.address.stat()
                file = found.st_dev, found.st_ino
        if self._opened is None or file != self._file:
            self._close()
            self._opened = open_reader(self.address)  # names what is wrong where the file is missing
            self._file = file
        return function(self._opened)

    def _close(self) -> None:
        if self._opened is not None:
            with suppress(StoreError):
                self._opened.close()
            self._opened = None


LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The names of a service for programs on the same machine."""


SILENT_S = 10.0
"""Seconds without a word of the aggregator after which HTTP says that it does not answer."""


class Live(Protocol):
    """The aggregator that runs in the same process."""

    def figures(self) -> MetricValues:
        """Return its metrics. Call this in the event loop."""
        ...

    @property
    def intake(self) -> IntakeStatus:
        """The state of its intake. Read this in the event loop."""
        ...

    @property
    def task_limit(self) -> str:
        """Why published tasks are not counted for lack of room; empty if all are counted."""
        ...

    @property
    def silent_s(self) -> float:
        """For how many seconds nothing was heard of it; 0 where it runs in this process."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """What is served, and to whom."""

    store: StoreAddress  # it may be created later
    hosts: frozenset[str] = LOOPBACK  # allowed names in `Host`, in lower case, without a port
    any_address: bool = False  # whether `Host` may be any address, as when the service listens on all interfaces
    # Needed for writing and for single reports; None if nobody may do either.
    token: Token | None = field(default=None, repr=False)
    # Names and tokens of those who may write and read single reports. If there are none, who has `token` may.
    administrators: tuple[tuple[str, Token], ...] = field(default=(), repr=False)
    audit: AuditLog | None = None  # where their actions are written; None for nowhere
    write: bool = False  # whether clients may add, withdraw and close tasks
    guarded: bool = False  # whether reading needs the token too
    confidence: float = 0.95  # nominal coverage of the intervals, inside (0, 1)
    estimator: Estimator | None = None  # calculates the estimates; None for threads
    live: Live | None = None  # the aggregator in the same process, or None
    root_path: str = ""  # the path below which a proxy has all of it, as `/hush`; empty for none
    frame_ancestors: tuple[str, ...] = ()  # origins whose pages may have it in a frame, as `https://example.org`
    trusted_proxies: tuple[Network, ...] = ()  # addresses of proxies; their requests count for the forwarded address


# Without `async`, FastAPI would call these in a thread for each request, which counts as concurrent meanwhile: requests
# without a token would then use up the share of their address before they are refused.
async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _reading(request: Request) -> StoreService:
    return cast("StoreService", request.app.state.reading)


ServiceDep = Annotated[Service, Depends(_service)]
"""The service, as a parameter of an endpoint."""

StoreDep = Annotated[StoreService, Depends(_reading)]
"""The store, as a parameter of an endpoint."""
