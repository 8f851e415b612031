"""The screens of every command: what is printed at each width, and the document that `--json` prints of the same."""

import asyncio
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from unittest.mock import patch

from commands import run
from heights import make_heights
from rendered import rendered
from scripted_broker import ScriptedBroker

import hush_client.client
import hush_simulations.commands.conform
from hush import Run
from hush_client import Policy
from hush_client.privacy.answer import Question, answer
from hush_client.state import ledger
from hush_client.state.database import DeviceState
from hush_common.task import decode_task
from hush_common.terminal import Renderable
from hush_common.topics import task_topic
from hush_simulations.conformance.conform import CHECKS, Order
from hush_simulations.conformance.device import Setup
from hush_simulations.conformance.findings import CheckVerdict, Conformance, Rule, RuleViolation
from hush_simulations.engines.experiment import SeededRng

__all__ = ["GOLDEN", "GOLDEN_WIDTH", "SCREENS", "WIDTHS", "document", "screen"]

GOLDEN = Path(__file__).parent / "golden" / "screens"
WIDTHS = (60, 80, 120)
GOLDEN_WIDTH = 80
"""The width whose screens are stored; the other widths show the same figures."""

_REPEATABLE = ("--engine", "memory", "--connections", "2", "--deterministic-noise", "--seed", "7")
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
    "mine.py": "import random\n_source = random.Random(1)\n\n"
    "def coins(value):\n    return value if _source.random() < 0.75 else not value\n",
}

SCREENS: dict[str, Sequence[str]] = {
    "simulate": ("simulate", *_REPEATABLE),
    "simulate-best": ("simulate", *_REPEATABLE, "--mechanism", "auto"),
    "simulate-all": ("simulate", *_REPEATABLE, "--all"),
    "simulate-one": ("simulate", *_REPEATABLE, "--clients", "1"),
    "simulate-survey": ("simulate", "survey", *_REPEATABLE),
    "simulate-commute": ("simulate", "commute", *_REPEATABLE, "--clients", "120"),
    "simulate-commute-all": ("simulate", "commute", *_REPEATABLE, "--clients", "120", "--all"),
    "simulate-offices": ("simulate", "offices", *_REPEATABLE, "--clients", "300"),
    "simulate-sleep": ("simulate", "sleep", *_REPEATABLE, "--clients", "300"),
    "simulate-rounds": ("simulate", *_REPEATABLE, "--rounds", "3", "--clients", "1500"),
    "simulate-commute-rounds": ("simulate", "commute", *_REPEATABLE, "--rounds", "2", "--clients", "120"),
    "simulate-plot": ("simulate", *_REPEATABLE, "--plot", "terminal"),
    "simulate-commute-plot": ("simulate", "commute", *_REPEATABLE, "--clients", "120", "--plot", "terminal"),
    "plan-plot": ("plan", "--epsilon", "1", "--people", "500", "--plot", "terminal"),
    "plan-people": ("plan", "--epsilon", "0.5", "--error", "50", "--lower", "0", "--upper", "4000", "--unit", "g"),
    "plan-error": ("plan", "--epsilon", "1", "--people", "500", "--lower", "120", "--upper", "220", "--unit", "cm"),
    "feasible": ("feasible", "--people", "3000", "--lower", "0", "--upper", "110", "--unit", "years"),
    "plan-epsilon": ("plan", "--people", "3000", "--error", "3%", "--domain", "category", "--categories", "8"),
    "audit": ("audit", "laplace", "--samples", "4000", "--seed", "1"),
    "audit-task": ("audit", "--task", "weights.toml", "--samples", "4000", "--seed", "1"),
    "audit-violation": (
        "audit",
        "mine:coins",
        "--inputs",
        "true",
        "false",
        "--epsilon",
        "0.9",
        "--samples",
        "20000",
        "--seed",
        "1",
    ),
    "task-check": ("task", "check", "weights.toml"),
    "task-check-rounds": ("task", "check", "daily.toml"),
    "task-check-wide": ("task", "check", "wide.toml"),
    "task-check-category": ("task", "check", "ways.toml"),
    "report": ("report", "heights", "172.5", "--state", "fresh", "--device", "sensor-17", "--spread", "0"),
    "ledger": ("ledger", "--state", "state"),
    "conform": ("conform", "--", "./thermometer"),
    "conform-violation": ("conform", "--require", "recalls", "--", "./careless"),
    "ledger-total": ("ledger", "--state", "state", "--total", "6"),
}
"""What is typed, by name."""

_RETAINED = {task_topic("heights"): make_heights()}


_NOW = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_PRINTING = (
    "client.commands.ledger",
    "client.commands.report",
    "aggregator.commands.task",
    "simulations.commands.simulate",
    "simulations.commands.plan",
    "simulations.commands.audit",
    "simulations.commands.conform",
)
_VIOLATIONS = ("audit-violation", "conform-violation")


@cache
def screen(name: str, width: int) -> str:
    """Standard output on a screen of so many columns."""
    return _NOW.sub("2026-01-01T00:00:00Z", rendered(_blocks(name), width, wraps=True))


@cache
def document(name: str) -> dict[str, object]:
    """What `--json` prints of it, and nothing else."""
    found: dict[str, object] = json.loads(_printed(name, "--json"))
    return found


@cache
def _blocks(name: str) -> list[Renderable]:
    """What the command hands over to be shown, at whatever width: it need not be run for each."""
    found: list[Renderable] = []
    with ExitStack() as stack:
        for module in _PRINTING:
            stack.enter_context(patch(f"hush_{module}.show", lambda blocks, *_: found.extend(blocks)))
        assert _printed(name) == ""
    return found


def _printed(name: str, *more: str) -> str:
    with _place() as directory, _quick():
        words = list(SCREENS[name])
        end = words.index("--") if "--" in words else len(words)
        shown = run([*words[:end], *more, *words[end:]], directory, patience=60)
    assert shown.code == (name in _VIOLATIONS), shown.err
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
        yield place


@contextmanager
def _quick() -> Iterator[None]:
    """A machine that takes as long as every other, and a module of a person's own that is new each time."""
    with (
        patch.object(Run, "elapsed_s", property(lambda _: 1.25)),
        patch.object(Run, "reports_per_s", property(lambda _: 4321.0)),
        patch.object(hush_simulations.commands.conform, "conform", _conformance),
        patch.object(hush_client.client, "_mqtt", lambda *_: ScriptedBroker(retained=_RETAINED)),
    ):
        yield
        sys.modules.pop("mine", None)


async def _conformance(setup: Setup, order: Order, _: object) -> Conformance:
    """The result of two programs: a run would take other times each time."""
    checks = {
        check.name: CheckVerdict(check.name, check.title, "passed", seconds=2.5, finds=check.finds, misses=check.misses)
        for check in CHECKS
    }
    noise = "laplace: 360 reports; a share that is wrong by 38 points would be found"
    noise += "; noise for twice the epsilon would be found with probability 0.99"
    checks["noise"] = replace(checks["noise"], remarks=(noise, "table is not supported"), seconds=31.0)
    if setup.command == ("./careless",):
        twice = RuleViolation(Rule.CHARGED_ONCE, "answered round 2 with 2 different reports")
        larger = "offered 1 and 8: it took the larger one, above its limit of 4"
        few = "laplace: 74 of 360 reports in 60 s of its devices, too few to judge; "
        few += "give more time with --seconds, or use --batch"
        checks["rounds"] = replace(checks["rounds"], status="failed", faults=(twice,))
        checks["offers"] = replace(checks["offers"], status="failed", faults=(RuleViolation(Rule.OFFER, larger),))
        checks["recalls"] = replace(checks["recalls"], status="not supported")
        checks["noise"] = replace(checks["noise"], status="not judged", remarks=(few,))
    return Conformance(setup.command[0], tuple(checks.values()), tuple(order.require))


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
