"""A task is validated before anything is published, and errors name the field, the value and the remedy."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hush import Task
from hush_common.domain import BitDomain, NumberDomain
from hush_common.errors import TaskError
from hush_common.task import PAYLOAD_LIMIT, decode_task, make_task, read_task

NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
BIT = {"kind": "bit"}
HEIGHTS: dict[str, Any] = {"id": "heights", "epsilon": "1", "domain": NUMBER}
DAILY: dict[str, Any] = {**HEIGHTS, "rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
STICKY: dict[str, Any] = {**DAILY, "repeat": "sticky"}
COINS: dict[str, Any] = {"id": "coins", "domain": BIT, "coins": {"truth": "0.5", "yes": "0.5"}}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "Heights"}, "id"),
        ({"id": "../../etc"}, "id"),
        ({"id": "a/+"}, "id"),
        ({"id": "-a"}, "id"),
        ({"id": "a" * 65}, "id"),
        ({"id": 5}, "id"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"epsilon": "1e-9"}, "epsilon"),
        ({"epsilon": "60"}, "epsilon"),
        ({"epsilon": 0.5}, "epsilon"),
        ({"epsilom": "1"}, "epsilom"),
        ({"mechanism": "gauss"}, "mechanism"),
        ({"mechanism": "randomized_response"}, "mechanism"),
        ({"title": "a\x1b[31mred"}, "title"),
        ({"purpose": "x" * 501}, "purpose"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"rounds": 10**400}, "rounds"),
        ({"rounds": 10**400, "domain": {"kind": "category", "labels": ["a", "b"]}}, "rounds"),
        ({"mechanism": ""}, "mechanism"),
        ({"mechanism": ["laplace"]}, "mechanism"),
        ({"domain": "number"}, "domain"),
        ({"domain": {**NUMBER, "upper": 10**400}}, "domain.upper"),
        ({"offers": "1"}, "offers"),
        ({"title": None}, "title"),
        ({"opens": 5}, "opens"),
        ({"enrolled": "many"}, "enrolled"),
        ({"rounds": 2}, "rounds"),
        ({**DAILY, "round_every": "soon"}, "round_every"),
        ({**DAILY, "round_every": "0d"}, "round_every"),
        ({**DAILY, "round_every": "999999999w"}, "round_every"),
        ({**DAILY, "round_every": "99999w", "rounds": 1000}, "round_every"),
        ({**DAILY, "epsilon": "0.000001"}, "epsilon"),
        ({**DAILY, "repeat": "often"}, "repeat"),
        ({**STICKY, "rounds": 1}, "repeat"),
        ({**STICKY, "rounds": 2}, "repeat"),
        ({**STICKY, "levels": 3}, "repeat"),
        ({**STICKY, "rounds": 2, "domain": BIT}, "repeat"),
        ({**STICKY, "rounds": 0}, "rounds"),
        ({**STICKY, "mechanism": "laplace"}, "repeat"),
        ({**STICKY, "offers": ["0.5", "1"]}, "repeat"),
        ({**STICKY, "domain": {"kind": "category", "labels": ["a", "b"]}}, "repeat"),
        ({**STICKY, "levels": [1, 2]}, "levels"),
        ({**STICKY, "levels": 1025, "rounds": 2000}, "levels"),
        ({**STICKY, "levels": 0}, "levels"),
        ({**STICKY, "mechanism": "randomized_response", "levels": -1}, "mechanism"),
        ({**STICKY, "levels": -1}, "levels"),
        ({**STICKY, "epsilon": "0.000001"}, "epsilon"),
        ({"opens": "2026-01-01T00:00:00"}, "opens"),
        ({"opens": "yesterday"}, "opens"),
        ({"opens": "0001-01-01T00:00:00+23:59"}, "opens"),
        ({"closes": "9999-12-31T23:59:59-00:01"}, "closes"),
        ({"opens": "2026-01-02T00:00:00Z", "closes": "2026-01-01T00:00:00Z"}, "closes"),
        ({"coins": {"truth": "0.5", "yes": "0.5"}}, "coins"),
        ({"domain": {**NUMBER, "lower": 220.0}}, "domain.lower"),
        ({"domain": {**NUMBER, "lower": -1e308, "upper": 1e308}}, "domain.upper"),
        ({"domain": {**NUMBER, "lower": "120"}}, "domain.lower"),
        ({"domain": {**NUMBER, "lower": True}}, "domain.lower"),
        ({"domain": {**NUMBER, "unit": "\n"}}, "domain.unit"),
        ({"domain": {**NUMBER, "outside": "drop"}}, "domain.outside"),
        ({"domain": {**NUMBER, "outside": "refuse"}}, "domain.outside"),
        ({"domain": {"kind": "category", "labels": ["a", "b"], "other": "c"}}, "domain.other"),
        ({"domain": {"kind": "category", "labels": ["a", "b"], "other": 1}}, "domain.other"),
        ({"domain": {"kind": "bit", "other": "a"}}, "domain.other"),
        ({"domain": {"kind": "number"}}, "domain.lower"),
        ({"domain": {"kind": "colour"}}, "domain"),
        ({"domain": {}}, "domain"),
        ({"domain": []}, "domain"),
    ],
    ids=str,
)
def test_a_bad_task_is_refused_by_the_name_of_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError) as caught:
        make_task({**HEIGHTS, **change})
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 220


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
    with pytest.raises(TaskError) as caught:
        make_task({**COINS, "coins": coins})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("truth", "yes", "epsilon"),
    [
        ("0.5", "0.5", "1.098613"),  # fair coins: ln 3
        ("0.5", "0.1", "2.397896"),  # yes given yes 0.55, given no 0.05: ln 11, where the other ratio is ln 2.1
        ("0.5", "0.9", "2.397896"),  # the mirror image: only the ratio of the *no* answers shows it
    ],
)
def test_the_epsilon_of_two_coins_comes_from_all_four_ratios(truth: str, yes: str, epsilon: str) -> None:
    task = make_task({**COINS, "coins": {"truth": truth, "yes": yes}})
    assert task.epsilon == Fraction(epsilon)


def test_coins_with_a_declared_epsilon_that_is_not_theirs_are_told_the_right_one() -> None:
    with pytest.raises(TaskError, match=r"1\.098613"):
        make_task({**COINS, "epsilon": "1"})
    with pytest.raises(TaskError, match=r"1\.098613"):
        make_task({**COINS, "epsilon": "2"})
    assert make_task({**COINS, "epsilon": "1.098613"}).epsilon == Fraction("1.098613")


def test_what_is_left_out_has_one_sensible_value() -> None:
    task = make_task(HEIGHTS)
    assert (task.mechanism, task.rounds, task.domain) == ("laplace", 1, NumberDomain(120.0, 220.0, "cm"))
    bit = make_task({"id": "survey", "epsilon": 1, "domain": BIT})
    assert (bit.mechanism, bit.domain) == ("randomized_response", BitDomain())


def test_the_digest_is_that_of_the_received_bytes_whatever_their_form() -> None:
    task = make_task(HEIGHTS)
    spaced = json.dumps(json.loads(task.payload), indent=2).encode()
    assert decode_task(spaced).digest != task.digest
    assert decode_task(spaced).domain == task.domain


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{",
        b'{"id":"a","id":"b"}',
        b"[" * 30_000,
        b" " * (PAYLOAD_LIMIT + 1),
        b'{"v":NaN}',
    ],
    ids=["empty", "not UTF-8", "list", "null", "cut", "duplicate", "nested", "long", "NaN"],
)
def test_a_retained_message_that_is_no_task_is_an_error_and_nothing_else(payload: bytes) -> None:
    with pytest.raises(TaskError):
        decode_task(payload)


def test_a_toml_file_and_a_json_file_say_the_same(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text(
        'id = "heights"\nepsilon = "1"\nopens = 2026-01-01T00:00:00Z\n'
        '[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\nunit = "cm"\n',
        encoding="utf-8",
    )
    as_json.write_text(json.dumps({**HEIGHTS, "opens": "2026-01-01T00:00:00Z"}), encoding="utf-8")
    assert read_task(toml) == read_task(as_json)


def test_a_file_that_is_missing_or_no_text_or_no_toml_is_named(tmp_path: Path) -> None:
    binary, broken = tmp_path / "b.toml", tmp_path / "c.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    broken.write_text("id = ", encoding="utf-8")
    for path in (tmp_path / "none.toml", binary, broken, tmp_path):
        with pytest.raises(TaskError) as caught:
            read_task(path)
        assert str(path) in str(caught.value)


def daily() -> Task:
    return make_task({**DAILY, "closes": "2026-01-06T00:00:00Z"})


@pytest.mark.parametrize(
    ("hours", "round_"), [(-1, None), (0, 0), (23, 0), (24, 1), (95, 3), (100, 3), (119, 3), (120, None)]
)
def test_the_clock_decides_the_round(hours: int, round_: int | None) -> None:
    assert daily().current_round(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)) == round_


def test_rounds_split_the_budget() -> None:
    assert daily().epsilon_per_round == Fraction(1, 4)
    assert daily().randomizer.epsilon == Fraction(1, 4)


def test_coins_over_rounds_cost_their_epsilon_each_time() -> None:
    task = make_task({**COINS, "rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"})
    assert task.epsilon == 3 * Fraction("1.098613")
    assert task.randomizer.epsilon == Fraction("1.098613")


def test_a_sticky_task_splits_its_epsilon_over_the_reports_of_its_memory() -> None:
    number = make_task({**STICKY, "rounds": 365})
    assert (number.mechanism, number.parameters.levels, number.draws) == ("multilevel", (1,), 2)
    assert number.randomizer.epsilon == number.epsilon_per_round == Fraction(1, 2)
    finer = make_task({**STICKY, "rounds": 365, "levels": 9})
    assert (finer.draws, finer.randomizer.epsilon) == (10, Fraction(1, 10))
    bit = make_task({**STICKY, "domain": BIT})
    assert (bit.draws, bit.randomizer.epsilon) == (2, Fraction(1, 2))
    coins = make_task({**STICKY, **COINS, "epsilon": None})
    assert (coins.epsilon, coins.randomizer.epsilon) == (2 * Fraction("1.098613"), Fraction("1.098613"))


def test_a_published_sticky_task_says_so_and_a_fresh_one_needs_no_word() -> None:
    sticky = make_task(STICKY)
    assert sticky.payload == (
        b'{"domain":{"kind":"number","lower":120.0,"outside":"clamp","unit":"cm","upper":220.0},"epsilon":"1",'
        b'"id":"heights","levels":1,"mechanism":"multilevel","opens":"2026-01-01T00:00:00Z","repeat":"sticky",'
        b'"round_every":"1d","rounds":4}'
    )
    assert decode_task(sticky.payload) == sticky
    assert make_task({**DAILY, "repeat": "fresh"}).payload == make_task(DAILY).payload
    assert sticky.digest != make_task({**DAILY, "mechanism": "multilevel", "levels": 1}).digest


@pytest.mark.parametrize(
    "domain",
    [
        NUMBER,
        {"kind": "bit"},
        {"kind": "category", "labels": ["a", "b"]},
        {"kind": "vector", "coordinates": [{"name": "a", "lower": 0.0, "upper": 1.0}]},
    ],
    ids=lambda domain: str(domain["kind"]),
)
def test_no_kind_of_domain_has_a_field_that_is_not_its_own(domain: dict[str, Any]) -> None:
    good = {"id": "t", "epsilon": "1", "domain": domain}
    make_task(good)
    with pytest.raises(TaskError, match=r"^domain\.clip: unknown field"):
        make_task({**good, "domain": {**domain, "clip": 1}})
