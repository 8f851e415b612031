"""Whoever writes something that a command reads wants it to crash, to say what it does not mean, or to tell secrets.

Legal calls of all commands are garbled by a seed. Each has to end as documented, with one clear line where it failed,
without a secret, and without anything that a terminal or the reader of a log would take for something else.
"""

import asyncio
import os
import random
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Self
from unittest.mock import patch

import pytest
from commands import EXIT_CODES, Option, Shown, commands, unprintable
from inputs import CALLS, NUMBER, SECRET, TASKS, Call, call, example, leaks, tasks_at_hand

import hush_aggregator.commands.serve
from hush import HushError
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.estimate.process import ThreadEstimator
from hush_common.broker_url import BrokerUrl
from hush_common.topics import Delivery, report_topic

# Ctrl-C may be pressed while a weak reference is cleared, where Python can only say so; it is pressed again.
pytestmark = [
    pytest.mark.large,
    pytest.mark.filterwarnings(r"ignore:[\s\S]*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("unrendered"),
]


FORGED = "all is well"
"""What an attacker who can forge a line would write in it."""

_HOSTILE = (
    *("\x1b[2J", "\x1b]0;x\x07", "\x9b2J", "\x07", "\x08", "\x7f", "\0", "\r", "\u2028", "\u202e", "\u2066", "\u200b"),
    *(f"\n{FORGED}\n", f"\r\nhush: {FORGED}\r\n", f"\n2026-01-01 00:00:00 INFO {FORGED}\n", "\t", "\udcff", "\ud800"),
)
_ODD = (
    *("", "-", "--", "=", "@", ":", "://", "?", "#", "%", "%0a", "%1b[2J", "%s", "{}", "[", "]", "'", '"', "\\"),
    *("/", "../"),
    *("9" * 400, "1" * 5000, "x" * 300, "x/" * 3000, "-1", "0", "1e999", "1e-999", "nan", "inf", "-0", "0x10", "1_0"),
    *("\u0663", "\u00b2", "½", "ﬁ", "\ufeff", "é", "\U0001f600", "1/0", "1/3", "true", "null", ",", ";", " ", "~", "*"),
    *("2026-13-45", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "99999999999999999999", "2", "3", "1e3"),
)


@dataclass(frozen=True)
class Past:
    """What was there before: the state of a device that has answered, and the store of an aggregator that has counted.

    Args:
        files: both, by name.
        reports: as they were sent.
    """

    files: Mapping[str, bytes]
    reports: Sequence[Delivery]


@dataclass(frozen=True)
class Garbled:
    """A call that may have lost its sense.

    Args:
        call: with its files, variables and standard input, some of them garbled.
        arguments: instead of those of the call.
        retained: what the broker of `hush report` keeps; None for one that is not there.
        messages: what the broker of `hush serve` delivers; None for one that is not there.
        secrets: what nobody may repeat; what was moved to where it is none is not among them.
    """

    call: Call
    arguments: Sequence[str]
    retained: dict[str, bytes] | None
    messages: Sequence[Delivery] | None
    secrets: tuple[str, ...]


def past_of(directory: Path) -> Past:
    """Make a past in an empty directory."""
    with tasks_at_hand() as broker:
        for one in CALLS[:4]:
            assert call(one.having("--timeout", "9"), directory).code == 0
        reports = [Delivery(*message) for message in broker.arrived]
    serve = next(one for one in CALLS if one.command == "serve")
    with _delivering([*_TASKS, *reports]):
        assert call(serve, directory).code == 0
    with closing(sqlite3.connect(directory / "store")) as store:
        assert store.execute("SELECT sum(n) FROM tally").fetchone() == (4,)
    return Past({name: (directory / name).read_bytes() for name in ("state/hush.sqlite3", "store")}, reports)


_TASKS = [Delivery(topic, payload) for topic, payload in TASKS.items()]


def garbled(seed: int, number: int, past: Past) -> Garbled:
    """Case `number` of a run. It is the same for the same seed, but for the ids and the noise in the past."""
    dice = random.Random(f"{seed} {number}")  # noqa: S311 - anybody may draw the same inputs again
    one = dice.choice(CALLS)
    if one.command in {"report", "ledger", "serve"}:
        one = replace(one, files={**one.files, **past.files})
    case = Garbled(one, one.arguments(), None, None, (SECRET, NUMBER))
    if one.command == "report" and dice.random() < 0.7:  # else nobody listens
        case = replace(case, retained=dict(TASKS))
    if one.command == "serve" and dice.random() < 0.7:
        case = replace(case, messages=[*_TASKS, *past.reports])
    ways = [_order, _variable, _typed, *(_word, _file, _message) * 2]
    for _ in range(dice.choice((1, 1, 2, 3))):
        case = dice.choice(ways)(dice, case)
    return replace(case, secrets=tuple(secret for secret in case.secrets if not _is_public(secret, case)))


def _is_public(secret: str, case: Garbled) -> bool:
    """Whether a garbled address can be read, and names the secret as something else than a password."""
    for text in (*case.arguments, *case.call.environment.values()):
        try:
            if secret in str(BrokerUrl.parse(text)):
                return True
        except HushError:
            continue
    return False


def _word(dice: random.Random, case: Garbled) -> Garbled:
    words = list(case.arguments)
    place = dice.randrange(len(words))
    words[place] = _passable(_text(dice, words[place]))
    return replace(case, arguments=words)


def _order(dice: random.Random, case: Garbled) -> Garbled:
    """Words dropped, doubled, exchanged, or borrowed from elsewhere: a secret may stand where nobody expects one."""
    words = list(case.arguments)
    first, second = dice.randrange(len(words)), dice.randrange(len(words))
    match dice.randrange(4):
        case 0:
            del words[first]
        case 1:
            words.insert(second, words[first])
        case 2:
            words[first], words[second] = words[second], words[first]
        case _:
            words.insert(second, dice.choice(dice.choice(CALLS).arguments()))
    return replace(case, arguments=words or ["--help"], secrets=())


def _variable(dice: random.Random, case: Garbled) -> Garbled:
    known = dict(case.call.environment) or {
        dice.choice(("HUSH_STATE", "XDG_STATE_HOME", "HUSH_NAME", "HUSH_TASK")): "x"
    }
    name = dice.choice(list(known))
    known[name] = _passable(_text(dice, known[name]))
    return replace(case, call=replace(case.call, environment=known))


def _typed(dice: random.Random, case: Garbled) -> Garbled:
    return replace(case, call=replace(case.call, typed=_bytes(dice, case.call.typed or b"1\n")))


def _file(dice: random.Random, case: Garbled) -> Garbled:
    files = case.call.files
    words = " ".join((*case.arguments, *case.call.environment.values()))
    read = [
        name for name in files if name.split("/", maxsplit=1)[0] in words or (name == "people.csv" and "own" in words)
    ]
    if not read:
        return _word(dice, case)
    name = dice.choice(read)
    change = _database if files[name].startswith(b"SQLite") and dice.random() < 0.8 else _bytes
    return replace(case, call=replace(case.call, files={**files, name: change(dice, files[name])}))


def _message(dice: random.Random, case: Garbled) -> Garbled:
    if case.retained is not None:
        topic = dice.choice(list(case.retained))
        return replace(case, retained={**case.retained, topic: _bytes(dice, case.retained[topic])})
    if case.messages is None:
        return _word(dice, case)
    messages = list(case.messages)
    messages.append(Delivery(report_topic("sum", "d-1"), b'{"v":1,"task":"sum","digest":"00","round":0,"body":[1]}'))
    place = dice.randrange(len(messages))
    topic, payload = messages[place].topic, messages[place].payload
    if dice.random() < 0.3:  # most names in topics are right
        topic = _text(dice, topic)
    messages[place] = Delivery(topic, _bytes(dice, payload))
    return replace(case, messages=messages)


def _passable(text: str) -> str:
    """What a process can be given: bytes without a null, which Python reads as it reads the names of files."""
    return os.fsdecode(text.replace("\0", "").encode("utf-8", "surrogatepass"))


def _text(dice: random.Random, text: str) -> str:
    start, end = sorted((dice.randint(0, len(text)), dice.randint(0, len(text))))
    piece = dice.choice(dice.choice((_HOSTILE, _ODD)))
    match dice.randrange(6):
        case 0:
            return piece
        case 1:
            return text[:start] + piece + text[end:]
        case 2:
            return text[:start] + text[end:]
        case 3:
            return text[:start] + 2 * text[start:end] + text[end:]
        case _:
            return text[:start] + piece + text[start:]


def _bytes(dice: random.Random, content: bytes) -> bytes:
    """As for texts; and sometimes a byte of its own, or a document of which one word alone is another."""
    if dice.random() < 0.2 and content:
        place = dice.randrange(len(content))
        return content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]
    if dice.random() < 0.5:
        words = content.split(b'"')
        place = dice.randrange(len(words))
        piece = _text(dice, words[place].decode("latin-1")).encode("utf-8", "surrogatepass")
        if dice.random() < 0.5:  # as a document would write it
            piece = b"".join(b"\\u%04x" % sign if sign < ord(" ") else bytes([sign]) for sign in piece)
        return b'"'.join([*words[:place], piece, *words[place + 1 :]])
    return _text(dice, content.decode("latin-1")).encode("utf-8", "surrogatepass")


def _database(dice: random.Random, content: bytes) -> bytes:
    """A row of a database says something else, as SQLite itself would write it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(content[:18] + b"\1\1" + content[20:])  # one in memory has no write-ahead log
        try:
            _update(dice, connection)
        except sqlite3.Error:  # it was garbled before, or will not have that
            return content
        changed = connection.serialize()
        return changed[:18] + content[18:20] + changed[20:]


def _update(dice: random.Random, connection: sqlite3.Connection) -> None:
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    (table,) = dice.choice(names.fetchall())
    column, kind = dice.choice([row[1:3] for row in connection.execute(f"PRAGMA table_info({table})")])
    (value,) = connection.execute(f"SELECT {column} FROM {table}").fetchone() or ("",)  # noqa: S608 - our own names
    new: object = _text(dice, value if isinstance(value, str) else "x").encode("utf-8", "replace").decode()
    kind = dice.choice((kind, kind, kind, kind, "BLOB", "INTEGER", "REAL", "TEXT"))  # SQLite takes them all
    if kind == "BLOB":
        new = _bytes(dice, value if isinstance(value, bytes) else b"x")
    if kind in ("INTEGER", "REAL"):
        new = dice.choice((-1, 0, 1, 2**31, 2**63 - 1, -(2**63))) if kind == "INTEGER" else -0.5
    connection.execute(f"UPDATE {table} SET {column} = ?", (new,))  # noqa: S608


@dataclass
class _Parcel:
    """A broker that delivers what it has, takes everything, and then has the command stopped."""

    messages: Sequence[Delivery]
    name: str = "parcel"
    resumed: bool = False
    waiting: int = 0
    repeated: int = 0
    current_until: float = 0.0

    def acknowledge(self, numbers: Iterable[int]) -> None:
        pass

    @asynccontextmanager
    async def connect(self, _filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        yield self

    async def batch(self) -> list[Delivery]:
        batch, self.messages = list(self.messages), ()
        if not batch:
            await asyncio.sleep(0.01)
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        return batch

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        pass

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        listen(topics[-1], b"probe")

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        pass

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        pass


class _Near(ThreadEstimator):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _delivering(messages: Sequence[Delivery]) -> AbstractContextManager[Any]:
    there = _Parcel(messages)
    return patch.multiple(
        hush_aggregator.commands.serve,
        MqttBroker=lambda *_, **__: there,
        SeparateConnections=lambda *_: None,
        ProcessEstimator=_Near,
    )


def shown(case: Garbled, directory: Path) -> Shown:
    """Run it."""
    with (
        nullcontext() if case.retained is None else tasks_at_hand(case.retained),
        nullcontext() if case.messages is None else _delivering(case.messages),
    ):
        return call(case.call, directory, arguments=case.arguments)


SEED = 20261122
_ALL, _PART, _SAMPLE = 10_000, 500, 50
_CASES = 8 * _SAMPLE
"""So many that every command is among them."""
_FORGED_LINE = re.compile(rf"^(hush: |[-0-9: ]+INFO )?{FORGED}", re.MULTILINE)


def complaints(case: Garbled, found: Shown, directory: Path) -> list[str]:
    """What is wrong with the way in which a command ended."""
    text = f"{found.out}\n{found.err}\n{found.log}"
    wrong = [f"a traceback: {found.trouble[-2000:]}"] if found.trouble or "Traceback" in text else []
    wrong += [f"exit code {found.code}"] if not found.trouble and found.code not in EXIT_CODES else []
    wrong += ["no clear message"] if found.code in {1, 2} and not _is_clear(case, found) else []
    wrong += [f"prints {sign!a}" for sign in unprintable(text)]
    wrong += ["a forged line"] if _FORGED_LINE.search(text) else []
    return wrong + leaks(found, directory, case.call.files, *case.secrets)


def _is_clear(case: Garbled, found: Shown) -> bool:
    """One line says what is wrong; a bare command shows its help, and a refused report may be told as JSON."""
    *_, last = found.err.splitlines() or [""]
    helps = found.err.lstrip().startswith("Usage: hush")
    refused = found.code == 1 and "--json" in case.arguments and found.out.startswith('{"v": 1, "status": "refused"')
    return last.startswith("hush: ") or helps or refused


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with TemporaryDirectory() as directory:
        yield past_of(Path(directory))


def judge(numbers: Iterable[int], past: Past, memory_path: Path) -> dict[str, list[str]]:
    """All that is wrong in the cases of these numbers."""
    found = {}
    for number in numbers:
        directory = memory_path / str(number)
        directory.mkdir()
        case = garbled(SEED, number, past)
        if wrong := complaints(case, shown(case, directory), directory):
            found[f"{number}: {case.arguments} {dict(case.call.environment)}"] = wrong
    return found


@pytest.mark.parametrize("start", range(0, _CASES, _SAMPLE))
def test_nothing_does_that_was_garbled(start: int, past: Past, memory_path: Path) -> None:
    assert judge(range(start, start + _SAMPLE), past, memory_path) == {}


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, _ALL, _PART))
def test_nothing_does_in_ten_thousand_cases(start: int, past: Past, memory_path: Path) -> None:
    assert judge(range(start, start + _PART), past, memory_path) == {}


HOSTILE = f"\x1b[2J\x9b2J\x07\r\nhush: {FORGED}\n\u202e\u2066\u2028"


def told(command: str, option: Option, text: str) -> Garbled:
    """The first legal call of a command, which is told `text` by an option."""
    one = example(command).having(option.flag, (text,) * option.width)
    return Garbled(one, one.arguments(), TASKS if command == "report" else None, None, ())


@pytest.mark.parametrize("command", commands())
def test_no_option_does_that_is_told_to_write_to_a_terminal(command: str, memory_path: Path) -> None:
    for option, text in product(commands()[command], (HOSTILE, f"x{HOSTILE}", f"1{HOSTILE}", f"/{HOSTILE}")):
        case = told(command, option, text)
        cases = [case]
        if option.variable is not None:
            bare = replace(case.call.without(option.flag), environment={option.variable: text})
            cases.append(replace(case, call=bare, arguments=bare.arguments()))
        for one in cases:
            place = Path(mkdtemp(dir=memory_path))
            assert complaints(one, shown(one, place), place) == [], option


def test_garbling_reaches_every_command_with_secrets(past: Past) -> None:
    cases = [garbled(SEED, number, past) for number in range(_ALL // 10)]
    assert {case.call.command for case in cases} == {one.command for one in CALLS}
    assert sum(bool(case.secrets) for case in cases) > len(cases) / 2
