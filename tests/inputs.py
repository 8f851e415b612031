"""Legal inputs of every command: arguments, environment, files and standard input, with secrets where they belong."""

import asyncio
import base64
import getpass
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch
from urllib.parse import quote

from commands import Shown, run
from heights import make_heights
from scripted_broker import ScriptedBroker

from hush_aggregator import SqliteStore
from hush_client.state.database import FILE_NAME, DeviceState
from hush_common.task import decode_task
from hush_common.topics import task_topic

__all__ = [
    "CALLS",
    "CELLS",
    "CLOSED",
    "FILES",
    "NUMBER",
    "SECRET",
    "TASKS",
    "Call",
    "call",
    "example",
    "leaks",
    "tasks_at_hand",
]

SECRET = "Zq7vXk0wPy4R"  # noqa: S105 - of tests
"""Nothing else looks like it."""

NUMBER = "7319468250"
"""As a number."""

CLOSED = "127.0.0.1:9"
"""Where nobody listens."""

_DOMAINS: dict[str, dict[str, object]] = {
    "sum": {"kind": "number", "lower": 0.0, "upper": 1e10},
    "vote": {"kind": "bit"},
    "way": {"kind": "category", "labels": ["bus", "train", "car"]},
    "pair": {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1e10} for name in ("x", "y")]},
}
TASKS = {task_topic(name): make_heights(id=name, domain=domain) for name, domain in _DOMAINS.items()}
"""What a broker of these tests keeps."""

_TASK_TOML = b"""\
id = "total"
title = "A sum"
purpose = "Sums"
epsilon = "1"
rounds = 3
round_every = "1d"
opens = 2026-01-01T00:00:00Z
[domain]
kind = "number"
lower = 0.0
upper = 1e10
unit = "EUR"
"""
_SCENARIO = b"""\
clients = 6
[task]
id = "colours"
title = "Colours"
epsilon = "1"
[task.domain]
kind = "category"
labels = ["red", "green", "blue"]
[population]
kind = "frequencies"
frequencies = { red = 0.5, green = 0.3, blue = 0.2 }
"""
_SWEEP = b"""\
scenario = "scenario.toml"
trials = 2
[grid]
"task.epsilon" = [1, 2]
"""
_OWN_SCENARIO = b"""\
[task]
id = "own"
epsilon = "1"
[task.domain]
kind = "number"
lower = 0.0
upper = 1e10
[population]
kind = "csv"
file = "people.csv"
column = "income"
"""
CELLS = tuple(str(int(NUMBER) + 104729 * place) for place in range(4))
"""Private numbers of a column."""

FILES: dict[str, bytes] = {
    "task.toml": _TASK_TOML,
    "task.json": TASKS[task_topic("way")],
    "scenario.toml": _SCENARIO,
    "own.toml": _OWN_SCENARIO,
    "sweep.toml": _SWEEP,
    "people.csv": b"who,income,smokes\n" + b"".join(b"p,%b,yes\n" % cell.encode() for cell in CELLS),
    "password": f"{SECRET}\n".encode(),
    "token": f"{3 * SECRET}\n".encode(),
    "webhook": b"whsec_" + base64.b64encode(3 * SECRET.encode()) + b"\n",
}


def _store() -> bytes:
    """A store that has one task."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        with SqliteStore(path) as store:
            store.add_task(decode_task(FILES["task.json"]))
        return path.read_bytes()


def _state() -> bytes:
    """A device that has answered nothing yet."""

    async def made(directory: Path) -> None:
        await (await DeviceState.open(directory)).close()

    with TemporaryDirectory() as directory:
        asyncio.run(made(Path(directory)))
        return (Path(directory) / FILE_NAME).read_bytes()


STATE_FILES = FILES | {f"state/{FILE_NAME}": _state()}
STORE_FILES = FILES | {"store": _store()}
"""A store in which `way` is counted."""
BROKER_FILES = FILES | {
    "kept/mosquitto.conf": b"",
    "kept/rules": b"",
    "kept/passwords": b"dave:$7$101$" + base64.b64encode(bytes(12)) + b"$" + base64.b64encode(bytes(64)) + b"\n",
    "kept/credentials/dave": f"{SECRET}\n".encode(),
}
"""The directory of a broker, with one user."""


@dataclass(frozen=True)
class Call:
    """A command with all that it reads.

    Args:
        command: its name, as in `commands.commands`.
        given: by flag or, for an argument, its name in capitals: what is typed. A switch has an empty text.
        typed: standard input.
        environment: variables.
        files: beside `FILES`, by name.
    """

    command: str
    given: Mapping[str, str | tuple[str, ...]]
    typed: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)

    def arguments(self) -> list[str]:
        """The command line."""
        words = self.command.split()
        for flag, text in self.given.items():
            words += [flag] if flag.startswith("-") else []
            words += [text] if isinstance(text, str) and text else [] if isinstance(text, str) else text
        return words

    def having(self, flag: str, text: str | tuple[str, ...]) -> "Call":
        """The same with another text for a flag or an argument."""
        return replace(self, given={**self.given, flag: text})

    def without(self, flag: str) -> "Call":
        return replace(self, given={known: text for known, text in self.given.items() if known != flag})


_BROKER = f"mqtt://alice:{SECRET}@{CLOSED}"
_LOGIN = {"--broker": f"mqtt://{CLOSED}", "--user": "alice", "--password-file": "password"}
_ANSWER = {"--state": "state", "--timeout": "0.05", "--spread": "0"}
CALLS: tuple[Call, ...] = (
    Call("report", {"TASK": "sum", "VALUE": NUMBER, **_ANSWER, "--broker": _BROKER}),
    Call("report", {"TASK": "pair", "VALUE": f"{NUMBER},{NUMBER}", **_ANSWER, "--json": "", "--device": "d-1"}),
    Call("report", {"TASK": "vote", "VALUE": "-", **_ANSWER, **_LOGIN}, typed=b"yes\n"),
    Call("report", {"TASK": "way", "VALUE": "-", **_ANSWER}, typed=b"bus\n", environment={"HUSH_BROKER": _BROKER}),
    Call(
        "report",
        {"TASK": "sum", "VALUE": "-", **_ANSWER, "--total": "9", "--max-epsilon": "2", "--epsilon": "1"},
        typed=f"{NUMBER}\n".encode(),
    ),
    Call(
        "gateway",
        {"--topic": "z/+", "--task": "sum", "--field": "t", "--source": _BROKER, "--state": "state", "--device": "g"},
    ),
    Call("sync", {"--state": "state", "--timeout": "0.05", "--broker": _BROKER, "--keep": "60"}, files=STATE_FILES),
    Call(
        "sync",
        {"--json": "", "--device": "d-1", "--timeout": "0.05", **_LOGIN},
        environment={"HUSH_STATE": "state"},
        files=STATE_FILES,
    ),
    Call("ledger", {"--state": "state", "--lifetime": "4", "--total": "8"}),
    Call("ledger", {"--json": ""}, environment={"HUSH_STATE": "state"}),
    Call("ledger", {"--forget": "sum", "--state": "state"}),
    Call("task check", {"FILE": "task.toml"}),
    Call("task check", {"FILE": "task.json", "--json": ""}),
    Call("task publish", {"FILE": "task.toml", **_LOGIN}),
    Call("task publish", {"FILE": "task.json"}, environment={"HUSH_BROKER": _BROKER}),
    Call("task publish", {"FILE": "task.toml", "--store": "store"}, files=STORE_FILES),
    Call("task list", {"--store": "store"}, files=STORE_FILES),
    Call("task withdraw", {"TASK": "way", "--store": "store"}, files=STORE_FILES),
    Call("task take-over", {"TASK": "way", "--store": "store"}, files=STORE_FILES),
    Call("task forget", {"TASK": "way", "--store": "store", "--yes": ""}, files=STORE_FILES),
    Call("results", {"TASK": "way", **_LOGIN}),
    Call("results", {"TASK": "way", "--store": "store", "--round": "all", "--csv": ""}, files=STORE_FILES),
    Call("results", {"TASK": "way", "--store": "store", "--confidence": "0.9", "--json": ""}, files=STORE_FILES),
    Call("watch", {"TASK": "way", **_LOGIN}),
    Call("watch", {"TASK": "way", "--http": f"http://{CLOSED}", "--token-file": "token", "--json": ""}),
    Call("export", {"TASK": "way", "--store": "store", "--out": "way.csv", "--round": "0"}, files=STORE_FILES),
    Call("store backup", {"FILE": "copy", "--store": "store"}, files=STORE_FILES),
    Call("store restore", {"FILE": "store", "--store": "new"}, files=STORE_FILES),
    Call("store compact", {"--store": "store"}, files=STORE_FILES),
    Call("store check", {"--store": "store", "--json": ""}, files=STORE_FILES),
    Call("store copy", {"SOURCE": "store", "TARGET": "new"}, files=STORE_FILES),
    Call(
        "doctor",
        {"--store": "store", "--broker": _BROKER, "--device-user": "kitchen", "--device-password-file": "password"},
        files=STORE_FILES,
    ),
    Call(
        "doctor",
        {**_LOGIN, "--http": f"http://{CLOSED}", "--token-file": "token", "--clock": f"http://{CLOSED}", "--strict": ""}
        | {"--json": ""},
    ),
    Call("task close", {"TASK": "way", "--store": "store"}, files=STORE_FILES),
    Call("task close", {"TASK": "way", "--round": "0"}, environment={"HUSH_STORE": "store"}, files=STORE_FILES),
    Call("task recall", {"TASK": "way", "--store": "store"}, files=STORE_FILES),
    Call("serve", {"--broker": _BROKER, "--store": "store", "--task": "task.toml", "--any-task": ""}),
    Call("serve", {"--broker": _BROKER, "--store": "store", "--quota": "2", "--gateway": "kitchen=50"}),
    Call(
        "serve",
        {"--broker": _BROKER, "--store": "store", "--home-assistant": "", "--home-assistant-prefix": "ha"}
        | {"--home-assistant-page": "https://hush.example"},
    ),
    Call(
        "serve",
        {**_LOGIN, "--accept-clock": ""},
        environment={"HUSH_STORE": "store", "HUSH_TASK": "task.json", "HUSH_NAME": "a", "HUSH_CONFIDENCE": "0.9"},
    ),
    Call(
        "serve",
        {"--broker": _BROKER, "--store": "store", "--http": "127.0.0.1:0", "--http-host": "hush.example"}
        | {"--http-write": "", "--http-token-file": "token", "--http-open": ""}
        | {"--http-trusted-proxy": "127.0.0.1"},
    ),
    Call(
        "serve",
        {"--broker": _BROKER, "--store": "store", "--notify": f"https://{CLOSED}/{SECRET}"}
        | {"--notify-secret-file": "webhook", "--notify-precision": "way=2%"},
    ),
    Call("http", {"--store": "store", "--bind": "127.0.0.1:0", "--confidence": "0.9"}, files=STORE_FILES),
    Call(
        "http",
        {"--bind": "127.0.0.1:0", "--host": "hush.example", "--write": "", "--token-file": "token", "--open": ""}
        | {"--trusted-proxy": "10.0.0.0/8"},
        environment={"HUSH_STORE": "store"},
        files=STORE_FILES,
    ),
    Call("http", {"--store": "store", "--bind": "127.0.0.1:0"}, environment={"HUSH_HTTP_TOKEN": 3 * SECRET}),
    Call("simulate", {"--engine": "memory", "--clients": "4", "--seed": "7", "--connections": "2"}),
    Call("simulate", {"SCENARIO": "scenario.toml", "--engine": "memory", "--rounds": "2", "--json": ""}),
    Call("simulate", {"SCENARIO": "own.toml", "--engine": "memory", "--mechanism": "auto"}),
    Call("simulate", {"SCENARIO": "sleep", "--engine": "memory", "--clients": "4", "--shares": "1,1,2", "--all": ""}),
    Call("simulate", {"--broker": _BROKER, "--clients": "2"}),
    Call(
        "simulate",
        {"--engine": "memory", "--csv": "people.csv", "--column": "income", "--lower": "0", "--upper": "1e10"}
        | {"--unit": "EUR", "--confidence": "0.9", "--epsilon": "1", "--deterministic-noise": "", "--seed": "7"},
    ),
    Call(
        "simulate",
        {"--engine": "memory", "--csv": "people.csv", "--column": "smokes", "--labels": "yes,no", "--json": ""},
    ),
    Call(
        "simulate",
        {"--engine": "memory", "--csv": "people.csv", "--column": "smokes", "--yes": "yes", "--clients": "5"}
        | {"--delimiter": "comma", "--encoding": "utf-8", "--header": "yes", "--decimal": ".", "--missing": "drop"},
    ),
    Call("sweep", {"SWEEP": "sweep.toml", "--out": "cells", "--trials": "3", "--seed": "7", "--parquet": ""}),
    Call("sweep", {"SWEEP": "sweep.toml", "--out": "cells", "--workers": "1", "--json": ""}),
    Call("plan", {"--epsilon": "1", "--error": "5%", "--lower": "0", "--upper": "100", "--unit": "cm"}),
    Call("plan", {"--people": "5000", "--epsilon": "1", "--domain": "category", "--categories": "4", "--json": ""}),
    Call("plan", {"--people": "5000", "--error": "2%", "--domain": "bit", "--rms": ""}),
    Call("plan", {"--people": "900", "--epsilon": "2", "--domain": "vector", "--coordinates": "2"}),
    Call("feasible", {"FILE": "people.csv", "--column": "income", "--lower": "0", "--upper": "1e10", "--out": "fig"}),
    Call("feasible", {"--people": "900", "--domain": "bit", "--epsilon": "0.5,2", "--error": "2%", "--json": ""}),
    Call("audit", {"MECHANISM": "laplace", "--samples": "100", "--seed": "3", "--epsilon": "1"}),
    Call("audit", {"--task": "task.toml", "--samples": "100", "--confidence": "0.9", "--json": ""}),
    Call("audit", {"MECHANISM": "math:sqrt", "--inputs": ("1", "4"), "--samples": "100"}),
    Call("audit", {"MECHANISM": "vector", "--coordinates": "2", "--samples": "100"}),
    Call("conform", {"COMMAND": "false", "--timeout": "1", "--check": "answers", "--json": ""}),
    Call(
        "poll",
        {"QUESTION": "Tea?", "--yes-no": "", "--bind": "127.0.0.1", "--port": "0"}
        | {"--broker": f"mqtt://{CLOSED}", "--websocket": f"ws://{CLOSED}", "--logins": "logins"}
        | {"--user": "alice", "--password-file": "password"},
        files={**FILES, "logins": b"phone-1:one\n"},
    ),
    Call("poll", {"QUESTION": "Tea?", "--labels": "tea,water", "--bind": "127.0.0.1", "--port": "0", "--json": ""}),
    Call("tour", {}),
    Call("scenario list", {}),
    Call("scenario show", {"NAME": "survey"}),
    Call("scenario check", {"FILE": "scenario.toml"}),
    Call("scenario new", {"FILE": "new.toml", "--like": "survey"}),
    Call("attack", {"--json": ""}),
    Call(
        "broker config",
        {"DIRECTORY": "broker", "--host": "127.0.0.1", "--port": "8883", "--listen": "127.0.0.1", "--queue": "7"}
        | {"--run-as": getpass.getuser(), "--mosquitto": "2.0"},
    ),
    Call("broker add", {"NAME": "alice", "--role": "publisher", "--config": "kept"}, files=BROKER_FILES),
    Call("broker add", {"NAME": "carol", "--password-file": "password", "--config": "kept"}, files=BROKER_FILES),
    Call("broker remove", {"NAME": "dave"}, environment={"HUSH_BROKER_CONFIG": "kept"}, files=BROKER_FILES),
    Call("broker run", {"--port": "0", "--host": "127.0.0.1"}),
    Call("broker run", {}),
)


@contextmanager
def tasks_at_hand(retained: Mapping[str, bytes] = TASKS) -> Iterator[ScriptedBroker]:
    """A broker in memory for `hush report`, whatever address it is told, so that reports are drawn and stored."""
    transport = ScriptedBroker(retained=dict(retained))
    with patch("hush_client.sending.mqtt.MqttTransport", lambda *_, **__: transport):
        yield transport


def call(
    one: Call,
    directory: Path,
    *,
    arguments: Sequence[str] | None = None,
    stored: bool = False,
    patience: float = 120.0,
) -> Shown:
    """Run a call in `directory`, with its files there.

    Args:
        one: what to call.
        directory: where.
        arguments: instead of those of the call.
        stored: whether tasks are at hand, so that reports are stored.
        patience: seconds after which somebody presses Ctrl-C.
    """
    for name, content in one.files.items():
        (directory / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o600)
    words = one.arguments() if arguments is None else arguments
    with ExitStack() as stack:
        if stored:
            stack.enter_context(tasks_at_hand())
        return run(words, directory, typed=one.typed, environment=one.environment, patience=patience)


def leaks(shown: Shown, directory: Path, given: Mapping[str, bytes], *secrets: str) -> list[str]:
    """Where a secret can be read: in what was shown, or in files that were not given.

    Args:
        shown: by a command.
        directory: where it ran.
        given: the files that it found there, which hold secrets.
        secrets: what nobody may read, in any writing.
    """
    shown_as = {
        name: getattr(shown, name).encode("utf-8", "surrogateescape") for name in Shown.__slots__ if name != "code"
    }
    places = shown_as | {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and given.get(str(path.relative_to(directory))) != path.read_bytes()
    }
    return [
        f"{secret} in {place}"
        for secret in secrets
        for place, content in places.items()
        if any(form in content or form in content.lower() for form in _forms(secret))
    ]


def _forms(secret: str) -> set[bytes]:
    raw = secret.encode()
    forms = {raw, raw.lower(), secret.encode("utf-16-le"), quote(secret).encode(), raw.hex().encode()}
    forms |= {base64.b64encode(b"x" * shift + raw)[2 * shift :][:-4] for shift in range(3)}
    if secret.isdecimal():
        number = int(secret)
        for order in "<>":
            forms |= {struct.pack(f"{order}d", number), struct.pack(f"{order}q", number)}
        forms |= {f"{number:{style}}".encode() for style in (",", "_", "x")}
        forms |= {f"{number:,}".replace(",", gap).encode() for gap in (" ", "\N{NO-BREAK SPACE}", "\N{THIN SPACE}")}
        forms |= {f"{number:e}".partition("e")[0].encode()}  # seven digits of it
    return forms


def example(name: str) -> Call:
    """The first legal call of a command."""
    return next(one for one in CALLS if one.command == name)
