"""What a task may say about its mechanism, and what is decided when it is published."""

import json
from fractions import Fraction
from typing import Any

import pytest

from hush import Task
from hush_common.errors import TaskError
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)
from hush_common.rng import SystemRng
from hush_common.task import decode_task, make_task, match_published

NUMBER = {"kind": "number", "lower": 0.0, "upper": 10.0}
BIT = {"kind": "bit"}
COLOURS = {"kind": "category", "labels": ["red", "green", "blue", "grey"]}
BODY = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in ("x", "y", "z")]}
DOMAINS: dict[str, dict[str, Any]] = {"number": NUMBER, "bit": BIT, "category": COLOURS, "vector": BODY}
VALUES: dict[str, list[object]] = {
    "number": [0, 3.7, 10],
    "bit": [False, True],
    "category": ["red", "grey"],
    "vector": [[0, 0, 0], [1, 0.3, 1]],
}
TWO_ROUNDS: dict[str, object] = {"rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DISCRETE = {"positions": [-1, 3], "unit": 2, "weights": [[3, 1], [1, 3]]}
"""A bit whose odds are 3 : 1."""


def task(domain: dict[str, Any], **fields: object) -> Task:
    return make_task({"id": "t", "epsilon": "1", "domain": domain, **fields})


@pytest.mark.parametrize(
    ("domain", "fields", "field"),
    [
        *((NUMBER, {"mechanism": "multilevel", "levels": bad}, "levels") for bad in (0, 1025, "3", [1, 2])),
        (NUMBER, {"mechanism": "multilevel", "offers": ["0.5", "1"], "levels": 1}, "levels"),
        (NUMBER, {"mechanism": "multilevel", "size": 1}, "size"),
        (NUMBER, {"mechanism": "laplace", "levels": 2}, "levels"),
        (NUMBER, {"mechanism": "subset_selection"}, "mechanism"),
        (NUMBER, {"mechanism": "vector"}, "mechanism"),
        (NUMBER, {"mechanism": "table", "epsilon": "0.3"}, "table"),
        (NUMBER, {"mechanism": "table", "table": "epsilon-3.00001"}, "table"),
        (NUMBER, {"mechanism": "table", "table": "../../../etc/passwd"}, "table"),
        (NUMBER, {"mechanism": "table", "table": "epsilon-1", "epsilon": "0.999"}, "table.weights"),
        (NUMBER, {"mechanism": "table", "table": DISCRETE}, "table.weights"),
        (NUMBER, {"mechanism": "table", "table": "epsilon-1", "offers": ["0.5", "1"]}, "offers"),
        (BIT, {"mechanism": "multilevel"}, "mechanism"),
        (BIT, {"levels": 1}, "levels"),
        (COLOURS, {"mechanism": "laplace"}, "mechanism"),
        *((COLOURS, {"size": bad}, "size") for bad in (0, 4, -1)),
        (COLOURS, {"coins": {"truth": "0.5", "yes": "0.5"}}, "coins"),
        *((BODY, {"sampled": bad}, "sampled") for bad in (0, 4, True)),
        (BODY, {"levels": 0}, "levels"),
        (BODY, {"mechanism": "multilevel"}, "mechanism"),
        *((NUMBER, {"offers": bad}, "offers") for bad in (["1", "0.5"], ["0.5", "0.5", "1"], ["0.5", "2"], ["1"])),
        *(
            (NUMBER, {"offers": bad}, "offers")
            for bad in ([0.5, "1"], ["0", "1"], [*(f"0.{n}" for n in range(1, 9)), "1"])
        ),
        *((NUMBER, {"enrolled": bad}, "enrolled") for bad in (0, 10**20, "many")),
    ],
    ids=str,
)
def test_a_mechanism_that_cannot_be_is_refused_by_the_name_of_its_field(
    domain: dict[str, Any], fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(TaskError) as caught:
        task(domain, **fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weights": [[3, 1], [1, 4]]}, "table.weights"),
        ({"weights": [[4, 0], [1, 3]]}, "table.weights"),
        ({"weights": [[3, 1], [2, 2]]}, "table.weights"),
        ({"weights": [[3, 1], [1, 3, 0]]}, "table.weights"),
        ({"weights": [[3, 1], [-1, 5]]}, "table.weights"),
        ({"weights": [[3, 1]]}, "table.weights"),
        ({"weights": []}, "table.weights"),
        ({"weights": [[3, 1], [1, 3.0]]}, "table.weights.1.1"),
        ({"weights": [[0, 0], [0, 0]]}, "table.weights"),
        ({"weights": [[2**128 + 1, 1], [1, 2**128 + 1]]}, "table.weights"),
        ({"positions": [-1, 2]}, "table.weights"),
        ({"positions": [], "weights": [[], []]}, "table.weights"),
        ({"unit": 0}, "table.unit"),
        ({"unit": -2}, "table.unit"),
        ({"extra": 1}, "table.extra"),
    ],
    ids=str,
)
def test_a_table_that_is_not_an_unbiased_channel_is_refused(change: dict[str, Any], field: str) -> None:
    assert isinstance(task(NUMBER, mechanism="table", epsilon="1.1", table=DISCRETE).randomizer, Channel)
    with pytest.raises(TaskError) as caught:
        task(NUMBER, mechanism="table", epsilon="1.1", table=DISCRETE | change)
    assert caught.value.field == field


# ---- what is decided when a task is published


@pytest.mark.parametrize(
    ("domain", "epsilon", "kind"),
    [
        ("number", "1", Channel),
        ("number", "2", Channel),
        ("number", "4", Channel),
        ("number", "0.3", Multilevel),
        ("number", "4.2", Channel),
        ("number", "9", Multilevel),
        ("bit", "1", RandomizedResponse),
        ("category", "1", SubsetSelection),
        ("vector", "1", Vector),
    ],
)
def test_auto_decides_by_domain_and_epsilon(domain: str, epsilon: str, kind: type[object]) -> None:
    assert isinstance(task(DOMAINS[domain], mechanism="auto", epsilon=epsilon).randomizer, kind)


def test_auto_decides_by_the_epsilon_of_one_round() -> None:
    assert isinstance(task(NUMBER, mechanism="auto", epsilon="2", **TWO_ROUNDS).randomizer, Channel)
    assert isinstance(task(NUMBER, mechanism="auto", epsilon="0.6", **TWO_ROUNDS).randomizer, Multilevel)


def test_a_number_without_a_mechanism_has_laplace() -> None:
    assert isinstance(task(NUMBER).randomizer, Laplace)


@pytest.mark.parametrize("mechanism", ["auto", "given"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_admits_the_smallest_and_the_largest_epsilon(domain: str, mechanism: str) -> None:
    for epsilon in ("0.000001", "50"):
        made = task(DOMAINS[domain], epsilon=epsilon, **({"mechanism": "auto"} if mechanism == "auto" else {}))
        assert made.randomizer.epsilon == Fraction(epsilon)
        assert decode_task(made.payload) == made
        for value in VALUES[domain]:
            body = made.perturb(made.domain.index(value), SystemRng(), 0)
            assert made.randomizer.admits(body)
            assert len(body) == made.randomizer.width


def test_a_published_task_has_all_that_a_device_needs() -> None:
    for domain, names in (("category", {"size"}), ("vector", {"levels", "sampled"}), ("number", {"levels"})):
        made = task(DOMAINS[domain], mechanism="auto", epsilon="9")
        document = json.loads(made.payload)
        assert names <= document.keys()
        assert document["mechanism"] == made.mechanism
        for name in names:
            rest = {key: value for key, value in document.items() if key != name}
            with pytest.raises(TaskError) as caught:
                decode_task(json.dumps(rest).encode())
            assert caught.value.field == name


@pytest.mark.parametrize(
    ("change", "field"),
    [({"mechanism": "auto"}, "mechanism"), ({"mechanism": "table", "table": "epsilon-1"}, "table")],
)
def test_a_published_task_leaves_no_choice_to_its_readers(change: dict[str, object], field: str) -> None:
    document = json.loads(task(NUMBER).payload) | change
    with pytest.raises(TaskError) as caught:
        decode_task(json.dumps(document).encode())
    assert caught.value.field == field


@pytest.mark.parametrize("domain", DOMAINS)
def test_offers_make_one_mechanism_each_at_its_share_of_a_round(domain: str) -> None:
    made = task(DOMAINS[domain], offers=["0.5", "1", "8"], epsilon="8", **TWO_ROUNDS)
    assert isinstance(made.randomizer, Offers)
    assert [part.epsilon for part in made.randomizer.parts] == [Fraction(1, 4), Fraction(1, 2), Fraction(4)]
    assert len({part.width for part in made.randomizer.parts}) == 1
    assert made.randomizer.epsilon == made.epsilon_per_round == 4
    assert made.randomizer.name == made.mechanism
    assert decode_task(made.payload) == made


def test_an_offer_too_small_for_its_rounds_is_refused() -> None:
    with pytest.raises(TaskError) as caught:
        task(NUMBER, offers=["0.000001", "1"], **TWO_ROUNDS)
    assert caught.value.field == "offers"


def test_a_report_of_a_long_vector_fits_into_a_body() -> None:
    long = {"kind": "vector", "coordinates": [{"name": f"{c}", "lower": 0, "upper": 1} for c in range(600)]}
    assert task(long, sampled=511).randomizer.width == 1022
    with pytest.raises(TaskError) as caught:
        task(long, sampled=512)
    assert caught.value.field == "sampled"


def test_a_task_with_a_shipped_table_stays_short() -> None:
    for epsilon, most in (("1", 2_000), ("4", 10_000), ("8", 60_000)):
        assert len(task(NUMBER, mechanism="auto", epsilon=epsilon).payload) < most
    assert task(NUMBER, mechanism="auto", epsilon="8", title=500 * "\U0001f9a7", purpose=500 * "\U0001f9a7").payload


# ---- what was decided before

DAILY = {"rounds": 9, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "repeat": "sticky", "epsilon": "4"}
EARLIER: list[tuple[dict[str, Any], dict[str, object], dict[str, object]]] = [
    (NUMBER, {"mechanism": "auto", "epsilon": "4.2"}, {"mechanism": "multilevel", "levels": 4}),
    (NUMBER, {"mechanism": "auto", "epsilon": "1.1"}, {"mechanism": "table", "table": DISCRETE}),
    (NUMBER, {"mechanism": "table", "epsilon": "1.1"}, {"table": DISCRETE}),
    (NUMBER, {"mechanism": "table", "table": "epsilon-1", "epsilon": "1.1"}, {"table": DISCRETE}),
    (NUMBER, {"mechanism": "multilevel"}, {"levels": 7}),
    (NUMBER, {"mechanism": "auto", "offers": ["0.5", "1"]}, {"mechanism": "multilevel", "levels": [2, 3]}),
    (NUMBER, {"mechanism": "auto", **DAILY}, {"mechanism": "multilevel", "levels": 3}),
    (COLOURS, {}, {"size": 3}),
    (BODY, {}, {"sampled": 2, "levels": 2}),
]
"""Domain, draft, and what another version of hush may have decided where the draft leaves it open."""


@pytest.mark.parametrize(("domain", "draft", "decided"), EARLIER)
def test_a_draft_meets_what_was_decided_for_it_before(
    domain: dict[str, Any], draft: dict[str, object], decided: dict[str, object]
) -> None:
    now, before = task(domain, **draft), task(domain, **draft | decided)
    assert now.payload != before.payload
    assert match_published(now, before.payload) == before
    assert match_published(now, now.payload) is now
    assert match_published(task(domain, **draft | decided), now.payload) is None, "a draft that says it stays with it"


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": "another"},
        {"title": "another"},
        {"epsilon": "4.1"},
        {"enrolled": 9},
        {"closes": "2030-01-01T00:00:00Z"},
        {"domain": NUMBER | {"upper": 11.0}},
        {"domain": NUMBER | {"unit": "m"}},
        {"domain": BIT, "mechanism": "randomized_response"},
        {"mechanism": "laplace"},
        {"offers": ["1", "4.2"]},
        TWO_ROUNDS,
    ],
    ids=str,
)
def test_a_draft_that_fixes_something_else_is_another_task(change: dict[str, Any]) -> None:
    draft = {"id": "t", "domain": NUMBER, "epsilon": "4.2", "mechanism": "auto"}
    before = draft | {"mechanism": "multilevel"} | change
    assert match_published(make_task(draft), make_task(before).payload) is None


def test_another_payload_decides_nothing() -> None:
    assert match_published(task(NUMBER, mechanism="auto"), b"{}") is None


def test_a_published_task_leaves_nothing_open() -> None:
    made = task(NUMBER, mechanism="auto")
    assert "mechanism" in made.chosen
    assert decode_task(made.payload).chosen == frozenset()
    assert task(NUMBER, mechanism="multilevel", levels=2).chosen == {"size", "sampled", "table"}
