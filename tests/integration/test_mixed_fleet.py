"""A task with rounds, answered by devices in every language: each charged once a round, every report counted once."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleet import LANGUAGES, Fleet, Observed, answer_rounds, unlikely_outputs
from port_programs import C_PORT, compiled_device, planted
from servers import Mosquitto
from serving import serving

from hush_common.mechanisms.channel import Channel
from hush_common.task import Task, read_task

pytestmark = pytest.mark.slow

VALUE = "15"  # the lower bound, so that an error of the sign is as large as possible
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


def toml(rounds: int, seconds: int) -> str:
    opens = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
    return TOML.format(epsilon=2 * rounds, rounds=rounds, seconds=seconds, opens=opens.isoformat())


def answered(fleet: Fleet, text: str) -> tuple[Task, Observed]:
    """Let a fleet answer all rounds of a task, counted by a real aggregator."""
    with serving(fleet.broker.url, fleet.directory, text), fleet.observed() as path:
        task = read_task(fleet.directory / "task.toml")
        return task, answer_rounds(fleet, path, task, str(task.epsilon))


def check(fleet: Fleet, task: Task, seen: Observed) -> None:
    """Every device has answered every round once, and each report is counted by its id.

    The budget of each device is what all rounds cost together: one that is charged twice for a round misses the last.
    """
    for number in range(task.rounds):
        assert seen.round(number) == set(fleet.senders)
        assert seen.counted[number] == len(fleet.senders)
    assert {len(set(payloads)) for payloads in seen.frames.values()} == {1}, "the same bytes, however often"
    assert len(seen.ids()) == task.rounds * len(fleet.senders)


def law_is_met(task: Task, bodies: list[tuple[int, ...]]) -> bool:
    mechanism = task.randomizer
    assert isinstance(mechanism, Channel)
    return not unlikely_outputs(mechanism, task.domain.index(float(VALUE)).scalar, bodies)


def test_a_mixed_fleet_is_charged_once_a_round_and_counted_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    fleet = Fleet(mosquitto, tmp_path, 2, VALUE, LANGUAGES)
    prepare(fleet)
    task, seen = answered(fleet, toml(rounds=2, seconds=15))
    check(fleet, task, seen)
    assert law_is_met(task, [body for language in LANGUAGES for body in seen.bodies(language)])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_mixed_fleet_of_twenty_devices_a_language_for_ten_rounds(mosquitto: Mosquitto, tmp_path: Path) -> None:
    fleet = Fleet(mosquitto, tmp_path, 20, VALUE, LANGUAGES)
    prepare(fleet)
    task, seen = answered(fleet, toml(rounds=10, seconds=150))
    check(fleet, task, seen)
    for language in LANGUAGES:
        assert law_is_met(task, seen.bodies(language)), language
    assert law_is_met(task, [body for language in LANGUAGES for body in seen.bodies(language)])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_sign_error_in_one_port_is_found_in_its_reports(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """The index of every value is mirrored: a table rounds from the other end."""
    wrong = planted(tmp_path / "wrong", "micropython/hush_micropython.py", *MIRRORED)
    fleet = Fleet(mosquitto, tmp_path, 20, VALUE, ("micropython",), {"micropython": wrong})
    task, seen = answered(fleet, toml(rounds=10, seconds=60))
    check(fleet, task, seen)
    assert not law_is_met(task, seen.bodies("micropython"))


MIRRORED = (
    "return [_table(task, index[0], rng)]",
    "return [_table(task, STEPS - index[0], rng)]",
)


def test_the_check_of_the_law_finds_a_mirrored_value_and_a_factor(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(toml(rounds=5, seconds=60), encoding="utf-8")
    task = read_task(tmp_path / "task.toml")
    index, source = task.domain.index(float(VALUE)).scalar, random.Random(5)  # noqa: S311 - the same every time
    mechanism = task.randomizer
    assert isinstance(mechanism, Channel)
    outputs = list(mechanism.outputs())

    def drawn(at: int) -> list[tuple[int, ...]]:
        weights = [float(mechanism.probability(body, at)) for body in outputs]
        return source.choices(outputs, weights, k=200)

    assert law_is_met(task, drawn(index))
    assert not law_is_met(task, drawn((1 << 20) - index))
    assert not law_is_met(task, [(len(outputs),)])


def prepare(fleet: Fleet) -> None:
    """Compile the device in C."""
    compiled_device(fleet.directory, C_PORT / "hush_line.c", sanitized=False)
