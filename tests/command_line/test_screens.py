"""Whole screens as people see them, and what holds of each: it fits its width, and has every number of `--json`."""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from commands import run
from heights import make_heights
from scripted_broker import ScriptedBroker
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

import hush_aggregator.commands.watch
import hush_aggregator.ops.doctor.peers
import hush_conform.command
from hush import Run
from hush_aggregator import Estimate, PartEstimate, Result, SqliteStore
from hush_aggregator.ops.watch.terminal import Event, EventKind
from hush_client import Policy
from hush_client.privacy.answer import Question, answer
from hush_client.state import ledger
from hush_client.state.database import DeviceState
from hush_common.task import decode_task
from hush_common.topics import task_topic
from hush_conform.findings import CheckVerdict, Conformance, Rule, RuleViolation
from hush_simulations.engines.experiment import SeededRng

pytestmark = [pytest.mark.medium, pytest.mark.face, pytest.mark.usefixtures("unrendered")]

# ---- the commands, and the world in which they run

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
    "simulate-all": f"simulate {_REPEATABLE} --all",
    "simulate-commute": _COMMUTE,
    "simulate-commute-all": f"{_COMMUTE} --all",
    "simulate-commute-plot": f"{_COMMUTE} --plot terminal",
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
        patch.object(hush_conform.command, "conform", _conformance),
        patch.object(hush_aggregator.commands.watch, "watch_broker", _watched),
        patch.object(hush_aggregator.ops.doctor.peers, "is_synchronised", lambda: True),
        patch("hush_client.sending.mqtt.MqttTransport", lambda *_, **__: ScriptedBroker(retained=_RETAINED)),
    ):
        yield
        sys.modules.pop("mine", None)


_RETAINED = {task_topic("heights"): make_heights()}


async def _conformance(*_: object) -> Conformance:
    """The result of a program that does not exist: a run would take other times each time."""
    twice = RuleViolation(Rule.CHARGED_ONCE, "round 2 has 2 reports")
    larger = RuleViolation(Rule.OFFER, "8 of 1 and 8, where 4 is the limit")
    checks = (
        CheckVerdict("answers", "one answer", "passed", seconds=2.5, finds="twice", misses="never"),
        CheckVerdict("rounds", "a charge for each round", "failed", seconds=2.5, faults=(twice,)),
        CheckVerdict("offers", "choice of an epsilon", "failed", seconds=2.5, faults=(larger,)),
        CheckVerdict("recalls", "recalled reports", "not supported", seconds=2.5),
        CheckVerdict("noise", "distribution of noise", "not judged", seconds=31.0, remarks=("74 of 360 reports",)),
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


# ---- tests

WIDTHS = (60, 80, 120)
STORED = (
    *("help", "help-of-report", "simulate", "plan-error", "sweep", "audit", "conform", "task-check", "ledger", "watch"),
    *("doctor", "tour"),
)
"""Screens that share no sentence: a message that is reworded changes at most one of them."""


class TextFiles(SingleFileSnapshotExtension):
    """A file of text for each screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("name", STORED)
def test_screen(name: str, snapshot: SnapshotAssertion) -> None:
    """After an intended change: pytest tests/command_line --snapshot-update, and read the difference."""
    assert screen(name, 80) == snapshot(extension_class=TextFiles)


@pytest.mark.large
@pytest.mark.parametrize("name", [name for name in SCREENS if name != "watch"])  # which writes a log to a pipe
def test_a_screen_fits_every_width(name: str) -> None:
    for width in WIDTHS:
        lines = screen(name, width).splitlines()
        assert all(line == line.rstrip() for line in lines)
        assert max(map(len, lines)) <= width
        assert not any("…" in line or "-0.0 " in line for line in lines)


# ---- numbers

FIGURE = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?(?!\d)|[+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?(?:/\d+(?:\.\d+)?)?")
WITH_NUMBERS = [
    name
    for name in SCREENS
    if name.startswith(("simulate", "plan", "audit", "task", "ledger", "feasible"))
    and name not in {"simulate-commute-plot", "plan-plot"}
]
IN_FULL = ("simulate-all", "simulate-commute-all")
SUMMED_UP = {
    *("stderr", "stderr_plug_in", "joint_intervals", "winsorised", "worst_case_bias", "replacement_bias", "pooled"),
    *("consistent", "connections", "rounds", "together", "elapsed_s"),
}
"""Of a simulation: what its table leaves to `--all`."""


def numbers(place: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Fraction]]:  # noqa: ANN401 - of a document
    """Every number of a document, those that are written as text too."""
    match value:
        case bool() | None:
            return
        case dict():
            for name, part in value.items():
                yield from numbers((*place, name), part)
        case list():
            for part in value:
                yield from numbers(place, part)
        case int() | float():
            yield place, Fraction(value)
        case str() if re.fullmatch(r"\d+(\.\d+)?(/\d+)?", value) and place[-1] not in {"digest", "report_id"}:
            yield place, Fraction(value)


def figures(text: str) -> list[tuple[Fraction, Fraction]]:
    """Every figure of a screen, and the unit of its last digit."""
    found = []
    for words in FIGURE.findall(text.replace("\n", "  ")):
        shown = words.replace(" ", "").removeprefix("+")
        over, _, under = shown.partition("/")
        mantissa, _, power = over.partition("e")
        unit = Fraction(1, 10 ** len(mantissa.partition(".")[2])) * Fraction(10) ** int(power or 0)
        found.append((Fraction(over) / Fraction(under or 1), Fraction(0) if under else unit))
    return found


def is_shown(value: Fraction, shown: list[tuple[Fraction, Fraction]]) -> bool:
    """Whether a figure is the number, or it in per cent, its size, or its inverse; rounded to the last digit."""
    wanted = [value, 100 * value, -value, -100 * value, *([1 / value] if value else [])]
    return any(abs(figure - one) <= unit for figure, unit in shown for one in wanted)


def left_out(name: str, place: tuple[str, ...]) -> bool:
    if name in IN_FULL:
        return False
    if name.startswith("simulate"):
        is_part = {"categories", "coordinates"} & set(place)
        return bool(SUMMED_UP & set(place)) or (is_part and "anytime" in place) or place[:2] == ("error", "population")
    return place == ("v",)  # of the document


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_every_number_of_the_document_is_on_the_screen(name: str) -> None:
    wanted = [(place, value) for place, value in numbers((), document(name)) if not left_out(name, place)]
    assert len(wanted) >= 2
    for width in WIDTHS:
        shown = figures(screen(name, width))
        missing = {".".join(place): float(value) for place, value in wanted if not is_shown(value, shown)}
        assert missing == {}, width


@pytest.mark.parametrize("name", [name for name in SCREENS if name not in {"help", "help-of-report", "doctor"}])
def test_every_width_shows_the_same_figures(name: str) -> None:
    halves_of_a_digest = re.compile(r"([0-9a-f]{32})\n +([0-9a-f]{32})\b")
    texts = (halves_of_a_digest.sub(r"\1\2", screen(name, width)) for width in WIDTHS)
    first, *others = [{value for value, _ in figures(text)} for text in texts]
    assert all(other == first for other in others)


def test_a_process_obeys_columns_and_pipes() -> None:
    asked = [sys.executable, "-m", "hush", "plan", "--epsilon", "1", "--people", "500"]
    narrow, piped = (
        subprocess.run(asked, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin", **more}).stdout
        for more in ({"COLUMNS": "60"}, {})
    )
    assert max(map(len, narrow.splitlines())) <= 60
    assert max(len(line) for line in piped.splitlines() if "±" in line) <= 100
    assert sorted(figures(piped)) == sorted(figures(narrow))
