"""A task is validated before anything is published, and errors name the field, the value and the remedy."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hush import Task
from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, Coordinate, NumberDomain, VectorDomain
from hush_common.errors import EpsilonError, TaskError
from hush_common.mechanisms.parameters import ChannelTable, Coins, Parameters
from hush_common.task import PAYLOAD_LIMIT, decode_task, make_task, read_task

NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
BIT = {"kind": "bit"}
CATEGORY = {"kind": "category", "labels": ["a", "b"]}
VECTOR = {"kind": "vector", "coordinates": [{"name": "a", "lower": 0.0, "upper": 1.0}]}
HEIGHTS: dict[str, Any] = {"id": "heights", "epsilon": "1", "domain": NUMBER}
DAILY: dict[str, Any] = {**HEIGHTS, "rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
STICKY: dict[str, Any] = {**DAILY, "repeat": "sticky"}
COINS: dict[str, Any] = {"id": "coins", "domain": BIT, "coins": {"truth": "0.5", "yes": "0.5"}}


def refused(document: dict[str, Any], field: str) -> str:
    """The message with which a document is refused by the name of a field."""
    with pytest.raises(TaskError) as caught:
        make_task(document)
    assert caught.value.field == field
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 220
    return str(caught.value)


# ---- documents


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({"id": bad}, "id") for bad in ("Heights", "../../etc", "a/+", "-a", "a" * 65, 5)),
        *(({"epsilon": bad}, "epsilon") for bad in (None, 0, "nan", "1e-9", "60", 0.5)),
        *(({"mechanism": bad}, "mechanism") for bad in ("gauss", "randomized_response", "", ["laplace"])),
        *(({"rounds": bad}, "rounds") for bad in (0, True, 10**400, 2)),
        *(({"offers": "1"}, "offers"), ({"enrolled": "many"}, "enrolled"), ({"epsilom": "1"}, "epsilom")),
        *(({"title": bad}, "title") for bad in ("a\x1b[31mred", None)),
        ({"purpose": "x" * 501}, "purpose"),
        ({"rounds": 10**400, "domain": CATEGORY}, "rounds"),
        *(({**DAILY, "round_every": bad}, "round_every") for bad in ("soon", "0d", "999999999w")),
        ({**DAILY, "round_every": "99999w", "rounds": 1000}, "round_every"),
        ({**DAILY, "epsilon": "0.000001"}, "epsilon"),
        ({**DAILY, "repeat": "often"}, "repeat"),
        *(({"opens": bad}, "opens") for bad in (5, "2026-01-01T00:00:00", "yesterday", "0001-01-01T00:00:00+23:59")),
        ({"closes": "9999-12-31T23:59:59-00:01"}, "closes"),
        ({"opens": "2026-01-02T00:00:00Z", "closes": "2026-01-01T00:00:00Z"}, "closes"),
        ({"coins": {"truth": "0.5", "yes": "0.5"}}, "coins"),
    ],
    ids=str,
)
def test_a_bad_task_is_refused_by_the_name_of_its_field(change: dict[str, Any], field: str) -> None:
    refused({**HEIGHTS, **change}, field)


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        *(({**NUMBER, "lower": bad}, "domain.lower") for bad in (220.0, "120", True)),
        ({**NUMBER, "upper": 10**400}, "domain.upper"),
        ({**NUMBER, "lower": -1e308, "upper": 1e308}, "domain.upper"),
        ({**NUMBER, "unit": "\n"}, "domain.unit"),
        *(({**NUMBER, "outside": bad}, "domain.outside") for bad in ("drop", "refuse")),
        *(({**CATEGORY, "other": bad}, "domain.other") for bad in ("c", 1)),
        *(({**CATEGORY, "labels": bad}, "domain.labels") for bad in ([], ["a"], ["a", "a"], ["a", ""], ["a", "  "])),
        *(({**CATEGORY, "labels": bad}, "domain.labels") for bad in (["a", "b\nc"], ["x" * 101, "a"])),
        ({**CATEGORY, "labels": [str(place) for place in range(1025)]}, "domain.labels"),
        ({**CATEGORY, "labels": ["a", 1]}, "domain.labels.1"),
        ({**BIT, "other": "a"}, "domain.other"),
        ({**VECTOR, "coordinates": []}, "domain.coordinates"),
        ({**VECTOR, "coordinates": VECTOR["coordinates"] * 2}, "domain.coordinates"),  # type: ignore[operator]
        ({**VECTOR, "coordinates": [{"name": "", "lower": 0.0, "upper": 1.0}]}, "domain.coordinates"),
        ({**VECTOR, "coordinates": [{"name": "x\x1b", "lower": 0.0, "upper": 1.0}]}, "domain.coordinates"),
        ({**VECTOR, "coordinates": [{"name": "x", "lower": 1.0, "upper": 1.0}]}, "domain.lower"),
        ({**VECTOR, "coordinates": [{"name": "x", "lower": 0.0}]}, "domain.coordinates.0.upper"),
        ({**VECTOR, "coordinates": [{"lower": 0.0, "upper": 1.0}]}, "domain.coordinates.0.name"),
        ({"kind": "number"}, "domain.lower"),
        *((bad, "domain") for bad in ({"kind": "colour"}, {}, "number")),
        *(({**known, "clip": 1}, "domain.clip") for known in (NUMBER, BIT, CATEGORY, VECTOR)),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_domain_is_refused_by_the_name_of_its_field(domain: dict[str, Any], field: str) -> None:
    refused({**HEIGHTS, "domain": domain}, field)


def test_a_vector_has_at_most_1024_coordinates() -> None:
    coordinates = [{"name": f"{c}", "lower": 0.0, "upper": 1.0} for c in range(1025)]
    make_task({**HEIGHTS, "domain": {"kind": "vector", "coordinates": coordinates[:1024]}, "sampled": 1})
    refused({**HEIGHTS, "domain": {"kind": "vector", "coordinates": coordinates}}, "domain.coordinates")


@pytest.mark.parametrize(
    ("coins", "field"),
    [
        ({"truth": "0", "yes": "0.5"}, "coins.truth"),
        ({"truth": "1.5", "yes": "0.5"}, "coins.truth"),
        ({"truth": "half", "yes": "0.5"}, "coins.truth"),
        ({"truth": "1", "yes": "0.5"}, "coins"),
        ({"truth": "0.5", "yes": "0"}, "coins"),
        ({"truth": "0.5", "yes": "1"}, "coins"),
    ],
    ids=str,
)
def test_coins_that_tell_nothing_or_everything_are_refused(coins: dict[str, str], field: str) -> None:
    refused({**COINS, "coins": coins}, field)


@pytest.mark.parametrize(
    ("truth", "yes", "epsilon"),
    [
        ("0.5", "0.5", "1.098613"),  # fair coins: ln 3
        ("0.5", "0.1", "2.397896"),  # yes given yes 0.55, given no 0.05: ln 11, where the other ratio is ln 2.1
        ("0.5", "0.9", "2.397896"),  # the mirror image: only the ratio of the *no* answers shows it
    ],
)
def test_the_epsilon_of_two_coins_comes_from_all_four_ratios(truth: str, yes: str, epsilon: str) -> None:
    document = {**COINS, "coins": {"truth": truth, "yes": yes}}
    assert make_task(document).epsilon == make_task({**document, "epsilon": epsilon}).epsilon == Fraction(epsilon)
    for other in ("1", "2"):
        assert epsilon in refused({**document, "epsilon": other}, "epsilon")


def test_a_field_that_is_left_out_has_one_sensible_value() -> None:
    task = make_task(HEIGHTS)
    assert (task.mechanism, task.rounds, task.domain) == ("laplace", 1, NumberDomain(120.0, 220.0, "cm"))
    bit = make_task({"id": "survey", "epsilon": 1, "domain": BIT})
    assert (bit.mechanism, bit.domain) == ("randomized_response", BitDomain())


def test_the_digest_is_that_of_the_received_bytes() -> None:
    task = make_task(HEIGHTS)
    spaced = json.dumps(json.loads(task.payload), indent=2).encode()
    assert decode_task(spaced).digest != task.digest
    assert decode_task(spaced).domain == task.domain


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"\xff", b"[]", b"null", b"{", b'{"id":"a","id":"b"}', b'{"v":NaN}'),
        pytest.param(b"[" * 30_000, id="nested"),
        pytest.param(b" " * (PAYLOAD_LIMIT + 1), id="long"),
    ],
    ids=str,
)
def test_a_retained_message_that_is_not_a_task_is_a_task_error(payload: bytes) -> None:
    with pytest.raises(TaskError):
        decode_task(payload)


def test_a_toml_file_and_a_json_file_make_the_same_task(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text(
        'id = "heights"\nepsilon = "1"\nopens = 2026-01-01T00:00:00Z\n'
        '[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\nunit = "cm"\n',
        encoding="utf-8",
    )
    as_json.write_text(json.dumps({**HEIGHTS, "opens": "2026-01-01T00:00:00Z"}), encoding="utf-8")
    assert read_task(toml) == read_task(as_json)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary, broken = tmp_path / "b.toml", tmp_path / "c.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    broken.write_text("id = ", encoding="utf-8")
    for path in (tmp_path / "none.toml", binary, broken, tmp_path):
        with pytest.raises(TaskError) as caught:
            read_task(path)
        assert str(path) in str(caught.value)


# ---- rounds


@pytest.mark.parametrize(
    ("hours", "round_"), [(-1, None), (0, 0), (23, 0), (24, 1), (95, 3), (100, 3), (119, 3), (120, None)]
)
def test_the_clock_decides_the_round(hours: int, round_: int | None) -> None:
    task = make_task({**DAILY, "closes": "2026-01-06T00:00:00Z"})
    assert task.current_round(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)) == round_


def test_rounds_split_the_budget() -> None:
    task = make_task(DAILY)
    assert task.epsilon_per_round == task.randomizer.epsilon == Fraction(1, 4)


def test_coins_over_rounds_cost_their_epsilon_each_time() -> None:
    task = make_task({**COINS, "rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"})
    assert task.epsilon == 3 * Fraction("1.098613")
    assert task.randomizer.epsilon == Fraction("1.098613")


def test_a_sticky_task_splits_its_epsilon_over_its_memory() -> None:
    number = make_task({**STICKY, "rounds": 365})
    assert (number.mechanism, number.parameters.levels, number.draws) == ("multilevel", (1,), 2)
    assert number.randomizer.epsilon == number.epsilon_per_round == Fraction(1, 2)
    finer = make_task({**STICKY, "rounds": 365, "levels": 9})
    assert (finer.draws, finer.randomizer.epsilon) == (10, Fraction(1, 10))
    bit = make_task({**STICKY, "domain": BIT})
    assert (bit.draws, bit.randomizer.epsilon) == (2, Fraction(1, 2))
    coins = make_task({**STICKY, **COINS, "epsilon": None})
    assert (coins.epsilon, coins.randomizer.epsilon) == (2 * Fraction("1.098613"), Fraction("1.098613"))


def test_a_published_task_says_whether_it_is_sticky() -> None:
    sticky = make_task(STICKY)
    assert json.loads(sticky.payload)["repeat"] == "sticky"
    assert decode_task(sticky.payload) == sticky
    assert make_task({**DAILY, "repeat": "fresh"}).payload == make_task(DAILY).payload
    assert sticky.digest != make_task({**DAILY, "mechanism": "multilevel", "levels": 1}).digest


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rounds": 1}, "repeat"),
        ({"rounds": 2}, "repeat"),
        ({"levels": 3}, "repeat"),
        ({"rounds": 2, "domain": BIT}, "repeat"),
        ({"rounds": 0}, "rounds"),
        ({"mechanism": "laplace"}, "repeat"),
        ({"offers": ["0.5", "1"]}, "repeat"),
        ({"domain": CATEGORY}, "repeat"),
        ({"levels": [1, 2]}, "levels"),
        ({"levels": 1025, "rounds": 2000}, "levels"),
        ({"levels": 0}, "levels"),
        ({"levels": -1}, "levels"),
        ({"mechanism": "randomized_response", "levels": -1}, "mechanism"),
        ({"epsilon": "0.000001"}, "epsilon"),
    ],
    ids=str,
)
def test_a_task_that_cannot_be_sticky_is_refused(change: dict[str, Any], field: str) -> None:
    refused({**STICKY, **change}, field)


# ---- tasks that are made without a document: as strict, and nothing inexact

TASK = Task(id="heights", epsilon=Fraction(1), mechanism="laplace", domain=NumberDomain(120.0, 220.0, "cm"))
HOSTILE: dict[str, tuple[Any, ...]] = {
    "id": (5, None, b"heights", "", "Heights", "a" * 65),
    "epsilon": (1.0, 1, True, "1", None, Fraction(0), Fraction(-1), Fraction(51), float("nan")),
    "mechanism": ("gauss", "", None, 1, ["laplace"], "randomized_response", "multilevel"),
    "domain": (None, "number", {"kind": "number"}, NumberDomain),
    "parameters": (None, {}, Parameters(levels=(1,)), Parameters(sampled=1)),
    "offers": ([], (0.5, 1), (Fraction(1),), (Fraction(2), Fraction(1)), None),
    "title": (None, 5, b"x", "\n", "x" * 501),
    "purpose": (None, 5, b"x", "\x1b[31m", "x" * 501),
    "rounds": (0, -1, 1.0, True, None, "1", 10**7),
    "repeat": (None, "", "often", True, "sticky"),
    "round_every": (1, "1d", timedelta(0), timedelta(days=-1), timedelta(seconds=1.5)),
    "opens": ("2026-01-01", 0, datetime(2026, 1, 1)),  # noqa: DTZ001 - it must be refused
    "closes": ("2026-01-01", 0, datetime(2026, 1, 1)),  # noqa: DTZ001
    "enrolled": (0, -1, 1.5, True, "9", 1 << 60),
    "payload": (None, "{}", bytearray(b"{}")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_argument_is_refused_by_its_name(name: str) -> None:
    for bad in HOSTILE[name]:
        with pytest.raises(TaskError) as caught:
            replace(TASK, **{name: bad})
        assert caught.value.field in {name, "levels", "sampled"}, bad
        assert str(caught.value).isprintable()


HOSTILE_RANGE: dict[str, tuple[Any, ...]] = {
    "lower": ("0", None, True, Fraction(1, 2), float("nan"), -(10**400)),
    "upper": (float("inf"), 10**400, 0.0),
    "unit": (None, "\n", "x" * 41),
    "steps": (0, -1, 1.5, True, GRID_STEPS + 1),
}


@pytest.mark.parametrize("kind", [NumberDomain, Coordinate])
def test_a_hostile_range_is_refused(kind: type[NumberDomain]) -> None:
    legal: dict[str, Any] = {"lower": 0.0, "upper": 1.0} | ({"name": "x"} if kind is Coordinate else {})
    kind(**legal)
    for name, values in HOSTILE_RANGE.items():
        for bad in values:
            with pytest.raises(TaskError) as caught:
                kind(**(legal | {name: bad}))
            assert caught.value.field.startswith("domain.")


def test_bounds_in_whole_numbers_are_the_same_bounds() -> None:
    assert NumberDomain(120, 220, "cm") == TASK.domain
    assert isinstance(NumberDomain(120, 220).lower, float)


TABLE: dict[str, Any] = {"positions": (0, 1), "unit": 1, "weights": ((1, 1), (1, 1))}
NO_INTEGERS: tuple[Any, ...] = ([1], (1.0,), (True,), ("1",), None)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (CategoryDomain, "labels", (["a", "b"], "ab", ("a", 1), ("a", None), None, {"a", "b"})),
        (VectorDomain, "coordinates", ([Coordinate(0, 1, name="x")], (NumberDomain(0, 1),), (None,), None)),
        (VectorDomain, "coordinates", ((Coordinate(0, 1, name="x"), Coordinate(0, 1, name="y", steps=4)),)),
        (Coordinate, "name", (None, 5, "", " ", "\n", "x" * 101)),
        (Parameters, "levels", NO_INTEGERS),
        (Parameters, "size", NO_INTEGERS),
        (Parameters, "sampled", (1.0, True, "1")),
        (Parameters, "coins", ("0.5", (0.5, 0.5))),
        (Parameters, "table", ("epsilon-1", {"unit": 1})),
        (Coins, "truth", (0.5, "0.5", None)),
        (ChannelTable, "positions", NO_INTEGERS),
        (ChannelTable, "unit", (1.0, True, None)),
        (ChannelTable, "weights", (((1.0, 1), (1, 1)), [(1, 1)], ([1], [1]), None)),
    ],
)
def test_a_part_of_a_task_that_is_not_exact_is_refused(kind: type[Any], name: str, values: tuple[Any, ...]) -> None:
    others: dict[type[Any], dict[str, Any]] = {
        Coordinate: {"lower": 0.0, "upper": 1.0},
        Coins: {"yes": Fraction(1, 2)},
        ChannelTable: TABLE,
    }
    for bad in values:
        with pytest.raises(TaskError):
            kind(**{**others.get(kind, {}), name: bad})


def test_an_epsilon_in_floating_point_is_an_error_of_epsilon() -> None:
    inexact: Any = 0.5
    with pytest.raises(EpsilonError, match=r"0\.5|exact"):
        replace(TASK, epsilon=inexact)


def test_a_task_without_published_bytes_binds_no_report() -> None:
    with pytest.raises(TaskError) as caught:
        _ = TASK.digest
    assert caught.value.field == "payload"
    assert replace(TASK, payload=b"{}").digest
