"""The screens of commands: what is printed at each width, and the document that `--json` prints of the same."""

import asyncio
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from commands import run
from heights import make_heights
from scripted_broker import ScriptedBroker

import hush_aggregator.commands.watch
import hush_aggregator.doctor.peers
import hush_simulations.commands.conform
from hush import Run
from hush_aggregator import Estimate, PartEstimate, Result, SqliteStore
from hush_aggregator.watch.terminal import Event, EventKind
from hush_client import Policy
from hush_client.privacy.answer import Question, answer
from hush_client.state import ledger
from hush_client.state.database import DeviceState
from hush_common.task import decode_task
from hush_common.topics import task_topic
from hush_simulations.conformance.findings import CheckVerdict, Conformance, Rule, RuleViolation
from hush_simulations.engines.experiment import SeededRng

__all__ = ["SCREENS", "document", "screen"]

_NUMBER = '[domain]\nkind = "number"\nlower = -50\nupper = 12_000\nunit = "g"\n'
_FILES = {
    "weights.toml": 'id = "weights"\ntitle = "Weight of parcels"\npurpose = "Sizing of vans"\nepsilon = "1"\n'
    + _NUMBER,
    "daily.toml": 'id = "daily"\nepsilon = "2"\nrounds = 1500\nround_every = "90m"\nopens = 2026-01-01T00:00:00Z\n'
    + _NUMBER,
    "ways.toml": 'id = "ways"\nepsilon = "2"\n[domain]\nkind = "category"\nlabels = ["car", "bus", '
    '"tram or underground", "train", "bicycle", "on foot", "works at home", "ferry", "otherwise"]\n'
    'other = "otherwise"\n',
    "wide.toml": 'id = "wide"\nepsilon = "8"\nsampled = 30\nlevels = 1\n[domain]\nkind = "vector"\n'
    + "".join(f'[[domain.coordinates]]\nname = "x{place}"\nlower = 0\nupper = 1\n' for place in range(80)),
    "sweep.toml": 'scenario = "heights"\ntrials = 3\n[grid]\n"task.epsilon" = [1, 2]\n"population.clients" = [40]\n',
    "mine.py": "import random\n_source = random.Random(1)\n\n"
    "def coins(value):\n    return value if _source.random() < 0.75 else not value\n",
}
_REPEATABLE = "--engine memory --connections 2 --deterministic-noise --seed 7"
_COMMUTE = f"simulate commute {_REPEATABLE} --clients 120"

SCREENS = {
    "help": "--help",
    "help-of-report": "report --help",
    "simulate": f"simulate {_REPEATABLE}",
    "simulate-best": f"simulate {_REPEATABLE} --mechanism auto",
    "simulate-all": f"simulate {_REPEATABLE} --all",
    "simulate-one": f"simulate {_REPEATABLE} --clients 1",
    "simulate-commute": _COMMUTE,
    "simulate-commute-all": f"{_COMMUTE} --all",
    "simulate-commute-plot": f"{_COMMUTE} --plot terminal",
    "simulate-offices": f"simulate offices {_REPEATABLE} --clients 300",
    "simulate-sleep": f"simulate sleep {_REPEATABLE} --clients 300",
    "simulate-rounds": f"simulate {_REPEATABLE} --rounds 3 --clients 1500",
    "plan-error": "plan --epsilon 1 --people 500 --lower 120 --upper 220 --unit cm",
    "plan-people": "plan --epsilon 0.5 --error 50 --lower 0 --upper 4000 --unit g",
    "plan-epsilon": "plan --people 3000 --error 3% --domain category --categories 8",
    "plan-plot": "plan --epsilon 1 --people 500 --plot terminal",
    "feasible": "feasible --people 3000 --lower 0 --upper 110 --unit years",
    "sweep": "sweep sweep.toml --out cells --seed 7 --workers 1",
    "audit": "audit laplace --samples 4000 --seed 1",
    "audit-task": "audit --task weights.toml --samples 4000 --seed 1",
    "audit-violation": "audit mine:coins --inputs true false --epsilon 0.9 --samples 20000 --seed 1",
    "task-check": "task check weights.toml",
    "task-check-rounds": "task check daily.toml",
    "task-check-wide": "task check wide.toml",
    "task-check-category": "task check ways.toml",
    "report": "report heights 172.5 --state fresh --device sensor-17 --spread 0",
    "ledger": "ledger --state state --total 6",
    "conform": "conform --require recalls -- ./careless",
    "watch": "watch heights --broker mqtt://broker",
    "doctor": "doctor --store store",
    "tour": "tour",
}
"""What is typed, by name."""

_FAILURES = {"audit-violation", "conform"}
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "2026-01-01T00:00:00Z"),
    (re.compile(r"(the clock says|not before) \d{4}-\d\d-\d\d"), r"\1 2026-01-01"),
    (re.compile(r"\d[\d.]* (GB free)"), r"80 \1"),
    (re.compile(r"\d[\d.]* (kB)"), r"90 \1"),
)
"""What differs from one machine and one moment to another."""


@cache
def screen(name: str, width: int) -> str:
    """Standard output on a screen of so many columns."""
    text = _printed(name, width=width)
    for varying, fixed in _VARIES:
        text = varying.sub(fixed, text)
    return text


@cache
def document(name: str) -> dict[str, Any]:
    """What `--json` prints of it, and nothing else."""
    found: dict[str, Any] = json.loads(_printed(name, "--json"))
    return found


def _printed(name: str, *more: str, width: int = 80) -> str:
    words, *device = SCREENS[name].split(" -- ")
    rest = ["--", *device] if device else []
    with _place() as directory, _quick():
        shown = run([*words.split(), *more, *rest], directory, environment={"COLUMNS": str(width)}, patience=60)
    assert shown.code == (name in _FAILURES), shown
    return shown.out


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, text in _FILES.items():
            (place / name).write_text(text, encoding="utf-8")
        (place / "state").mkdir(mode=0o700)
        for path in _state().iterdir():
            (place / "state" / path.name).write_bytes(path.read_bytes())
        with SqliteStore(place / "store") as store:
            store.add_task(decode_task(make_heights()))
        yield place


@contextmanager
def _quick() -> Iterator[None]:
    """A machine that takes as long as every other, and a module of a person's own that is new each time."""
    with (
        patch.object(Run, "elapsed_s", property(lambda _: 1.25)),
        patch.object(Run, "reports_per_s", property(lambda _: 4321.0)),
        patch.object(hush_simulations.commands.conform, "conform", _conformance),
        patch.object(hush_aggregator.commands.watch, "watch_broker", _watched),
        patch.object(hush_aggregator.doctor.peers, "is_synchronised", lambda: True),
        patch("hush_client.sending.mqtt.MqttTransport", lambda *_, **__: ScriptedBroker(retained=_RETAINED)),
    ):
        yield
        sys.modules.pop("mine", None)


_RETAINED = {task_topic("heights"): make_heights()}


async def _conformance(*_: object) -> Conformance:
    """The result of a program that does not exist: a run would take other times each time."""
    twice = RuleViolation(Rule.CHARGED_ONCE, "answered round 2 with 2 different reports")
    larger = RuleViolation(Rule.OFFER, "offered 1 and 8: it took the larger one, above its limit of 4")
    checks = (
        CheckVerdict("answers", "one answer", "passed", seconds=2.5, finds="twice", misses="never"),
        CheckVerdict("rounds", "a charge for each round", "failed", seconds=2.5, faults=(twice,)),
        CheckVerdict("offers", "one of several epsilons", "failed", seconds=2.5, faults=(larger,)),
        CheckVerdict("recalls", "recalled reports", "not supported", seconds=2.5),
        CheckVerdict("noise", "the law of the noise", "not judged", seconds=31.0, remarks=("74 of 360 reports",)),
    )
    return Conformance("./careless", checks, ("recalls",))


async def _watched(_broker: object, _task: str, put: Callable[[Event], object]) -> NoReturn:
    """The task, an estimate while reports arrive, and the last one."""
    task = decode_task(make_heights(title="How tall"))
    put(Event(EventKind.TASK, task.payload))
    put(Event(EventKind.CONNECTED))
    for n, mean, final in ((40, 171.0, False), (500, 172.5, True)):
        ends = {"reporters": (mean - 12, mean + 12), "anytime": (mean - 20, mean + 20)}
        part = PartEstimate(n=n, mean=mean, stderr={"reporters": 6.1}, intervals=ends)
        made = Result(
            task, 0, Estimate(n, (part,)), {}, 0.95, datetime(2026, 1, 1, tzinfo=UTC), closed=final, final=final
        )
        put(Event(EventKind.ESTIMATE, json.dumps(made.to_document()).encode()))
    await asyncio.Event().wait()
    raise AssertionError


@cache
def _state() -> Path:
    """The state of a device that has answered, from memory too, and refused."""
    place = Path(tempfile.mkdtemp(prefix="hush-screens-"))
    times = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
    steps = decode_task(make_heights(id="steps", purpose="Planning of parks", **times))
    sticky = decode_task(make_heights(id="sticky", repeat="sticky", **times))
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def write(connection: sqlite3.Connection) -> None:
        for task, days, policy in (
            (steps, (0, 1), Policy()),
            (sticky, (0, 1, 2), Policy(sticky=True)),
            (steps, (2,), Policy(total=1)),
        ):
            for day in days:
                question = Question(task, "topic", policy, now + timedelta(days=day))
                answer(connection, question, {"sensor-17": task.domain.read(172.0)}, SeededRng(1))
        charge = ledger.charges(connection, "sensor-17", "Planning of parks")[1]
        ledger.resent(connection, {charge.sequence or 0: 1})

    async def prepare() -> None:
        state = await DeviceState.open(place)
        await state.run(write)
        await state.close()

    asyncio.run(prepare())
    return place
