"""A task with rounds, answered by devices in every language: each charged once a round, every report counted once."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from fleet import FALSE_ALARM, LANGUAGES, Fleet, Observed, answer_rounds, p_value, spent
from port_cases import Answer, Case, answer_of
from port_programs import C_PORT, Port, compiled, compiled_device, planted, port_of
from servers import Mosquitto, free_port
from serving import serving
from stored import counted_ids

from hush import Task
from hush_common.mechanisms.channel import Channel
from hush_common.task import make_task, read_task

pytestmark = pytest.mark.medium

VALUE = "15"  # the lower bound, so that an error of the sign is as large as possible
ROUND_S = 35
"""Enough to start 121 devices on two cores, which takes some 20 s."""
TOML = """
id = "room"
purpose = "Heating"
epsilon = "{epsilon}"
mechanism = "auto"
rounds = {rounds}
round_every = "{seconds}s"
opens = {opens}
[domain]
kind = "number"
lower = 15
upper = 30
"""
MIRRORED = (
    "c/hush.c",
    "return table(source, task, *index, body);",
    "return table(source, task, HUSH_STEPS - *index, body);",
)
"""A sign error in one port: a table sees every value mirrored."""


@contextmanager
def open_broker(directory: Path) -> Iterator[Mosquitto]:
    """A broker for everybody, for browsers too."""
    directory.mkdir(parents=True)
    server = Mosquitto(directory, listeners={free_port(): "protocol websockets\nallow_anonymous true"})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def toml(rounds: int, seconds: int) -> str:
    opens = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=max(6, seconds // 2))
    return TOML.format(epsilon=2 * rounds, rounds=rounds, seconds=seconds, opens=opens.isoformat())


def answered(fleet: Fleet, text: str) -> tuple[Task, Observed]:
    """Let a fleet answer all rounds of a task, counted by a real aggregator."""
    compiled_device(fleet.directory, C_PORT / "hush_line.c", sanitized=False)
    with serving(fleet.broker.url, fleet.directory, text), fleet.observed() as path:
        task = read_task(fleet.directory / "task.toml")
        return task, answer_rounds(fleet, path, task, str(task.epsilon))


def is_complete(fleet: Fleet, task: Task, seen: Observed) -> bool:
    """Whether every device has answered every round."""
    return all(seen.round(number) == set(fleet.senders) for number in range(task.rounds))


def check(fleet: Fleet, task: Task, seen: Observed) -> None:
    """Every device has answered every round once, is charged for each once, and each report is counted by its id.

    The budget of each device is what all rounds cost together: one that is charged twice for a round misses the last.
    """
    assert is_complete(fleet, task, seen), [set(fleet.senders) - seen.round(number) for number in range(task.rounds)]
    assert {len(set(payloads)) for payloads in seen.frames.values()} == {1}, "the same bytes, however often"
    made = seen.ids()
    assert len(made) == task.rounds * len(fleet.senders)
    ids, n = counted_ids(fleet.directory / "hush.sqlite3")
    assert (sorted(ids), n) == (sorted(made), len(made))
    assert spent(fleet, task.id, str(task.epsilon)) == dict.fromkeys(fleet.senders, Fraction(task.epsilon))


def p_of(task: Task, bodies: list[tuple[int, ...]]) -> float:
    mechanism = task.randomizer
    assert isinstance(mechanism, Channel)
    return p_value(mechanism, task.domain.index(float(VALUE)).scalar, bodies)


@pytest.mark.large
def test_a_mixed_fleet_is_charged_once_a_round_and_counted_once(tmp_path: Path) -> None:
    for seconds in (20, 80):  # on a machine with other work a round may be over before all have started: once more then
        directory = tmp_path / str(seconds)
        with open_broker(directory / "broker") as broker:
            fleet = Fleet(broker, directory, 2, VALUE)
            task, seen = answered(fleet, toml(rounds=2, seconds=seconds))
            if is_complete(fleet, task, seen) or seconds > 20:
                check(fleet, task, seen)
                break
    assert p_of(task, [body for language in LANGUAGES for body in seen.bodies(language)]) > FALSE_ALARM


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_mixed_fleet_is_unbiased_and_a_sign_error_is_found(tmp_path: Path) -> None:
    """Twenty devices of each language, and twenty in C with a sign error; the pool of a fleet has one of the two."""
    wrong = planted(tmp_path / "wrong", *MIRRORED)
    compiled_device(wrong, wrong / "ports" / "c" / "hush_line.c", port=wrong / "ports" / "c", sanitized=False)
    with open_broker(tmp_path / "broker") as broker:
        fleet = Fleet(broker, tmp_path, 20, VALUE, (*LANGUAGES, "c.mirrored"), {"c.mirrored": wrong})
        task, seen = answered(fleet, toml(rounds=10, seconds=ROUND_S))
        check(fleet, task, seen)
    bodies = {group: seen.bodies(group) for group in fleet.languages}
    found = {group: p_of(task, drawn) for group, drawn in bodies.items()}
    others = [body for group in LANGUAGES if group != "c" for body in bodies[group]]
    found |= {"pooled": p_of(task, [*others, *bodies["c"]])}
    found |= {"pooled with the error": p_of(task, [*others, *bodies["c.mirrored"]])}
    again = sum(len(payloads) - 1 for payloads in seen.frames.values())
    print(f"{len(seen.ids())} reports, {again} came again; p: {found}")  # noqa: T201 - for -s
    assert {name for name, p in found.items() if p < FALSE_ALARM} == {"c.mirrored", "pooled with the error"}


# ---- the same without a broker: the reports that each port draws, in one process each

EACH = 200


def drawn_by(port: Port, task: Task, seed: int) -> list[tuple[int, ...]]:
    """The bodies that a port draws from the bytes of a seed."""
    source = random.Random(seed)  # noqa: S311 - the same every time
    outcomes = port.ask([Case(task, VALUE, source.randbytes(64)).order for _ in range(EACH)])
    return [tuple(map(int, outcome.split()[3].split(","))) for outcome in outcomes]


def drawn_in_python(task: Task, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    source = random.Random(seed)  # noqa: S311 - the same every time
    answers = [answer_of(Case(task, VALUE, source.randbytes(64)), monkeypatch) for _ in range(EACH)]
    return [answer.report.body for answer in answers if isinstance(answer, Answer)]


def c_port(directory: Path, port: Path = C_PORT) -> Port:
    return Port((str(compiled(directory, library=port / "hush.c", sanitized=False)),))


@pytest.mark.large
def test_a_sign_error_planted_in_one_port_is_found_in_what_all_ports_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = {"kind": "number", "lower": 15, "upper": 30}
    task = make_task({"id": "room", "epsilon": "2", "mechanism": "auto", "domain": domain})
    others = drawn_in_python(task, 1, monkeypatch)
    for seed, language in enumerate(("node", "cpython"), 2):
        others += drawn_by(port_of(language, tmp_path), task, seed)
    wrong = planted(tmp_path / "wrong", *MIRRORED)
    assert len(others) == 3 * EACH
    assert p_of(task, [*others, *drawn_by(c_port(tmp_path), task, 4)]) > FALSE_ALARM
    assert p_of(task, [*others, *drawn_by(c_port(wrong, wrong / "ports" / "c"), task, 4)]) < FALSE_ALARM
