"""What is shown to a person agrees with the JSON of the same run, in every figure, to the digits shown."""

import asyncio
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rendered import rendered

from hush import SCENARIOS, Run
from hush.cli import main
from hush_aggregator import explain
from hush_aggregator.explain import meaning
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.task import read_task
from hush_simulations.display import plan_table, table
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.planning.plan import PlanQuestion, solve

FIGURE = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?(?!\d)|[+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?")
WIDTHS = (60, 80, 120)


def figures(words: str) -> list[str]:
    return [found.replace(" ", "") for found in FIGURE.findall(words)]


def agrees(shown: str, value: float | Fraction, *, directed: bool = False) -> bool:
    """Whether a figure is the value to half a unit of its last digit; rounded one way, to less than a whole one."""
    unit = Fraction(Decimal((0, (1,), int(Decimal(shown).as_tuple().exponent))))
    off = abs(Fraction(shown) - Fraction(value))
    return off < unit if directed else off <= unit / 2 * (1 + Fraction(1, 10**9))


def unmatched(
    words: str, values: Iterable[float | Fraction], bounds: Iterable[float] = ()
) -> tuple[list[str], list[Any]]:
    """The figures that are shown and not in the JSON, and those of the JSON that are not shown; nearest first."""
    left, one_way = [Fraction(value) for value in values], [Fraction(bound) for bound in bounds]
    strange = []
    for shown in figures(words):
        for some, directed in ((left, False), (one_way, True)):
            nearest = min(some, key=lambda value: abs(value - Fraction(shown)), default=None)
            if nearest is not None and agrees(shown, nearest, directed=directed):
                some.remove(nearest)
                break
        else:
            strange.append(shown)
    return strange, [*map(float, left), *map(float, one_way)]


QUESTIONS: list[tuple[Domain, dict[str, Any]]] = [
    (NumberDomain(0.0, 4000.0, "g"), {"epsilon": Fraction(1), "error": 0.05}),
    (NumberDomain(0.0, 4000.0, "g"), {"epsilon": Fraction(1), "people": 700}),
    (NumberDomain(0.0, 1.0), {"epsilon": Fraction(4), "people": 12_345}),
    (NumberDomain(0.0, 1.0), {"epsilon": Fraction(8), "error": 0.02}),
    (NumberDomain(0.0, 1.0), {"people": 40, "error": 0.2}),
    (NumberDomain(-50.0, 950.0, "kg"), {"people": 3_000, "error": 0.1}),
    (BitDomain(), {"epsilon": Fraction(1, 10), "error": 0.01}),
    (BitDomain(), {"epsilon": Fraction(2), "people": 50}),
    (CategoryDomain(tuple("abcdefgh")), {"epsilon": Fraction(2), "error": 0.02}),
    (
        VectorDomain(tuple(Coordinate(0.0, 2e5, "Pa", name=str(n)) for n in range(4))),
        {"epsilon": Fraction(2), "people": 9_000},
    ),
]


def error_in_words(found: dict[str, Any], value: float) -> list[float | Fraction]:
    domain = found["domain"]
    if domain["kind"] in {"bit", "category"} or (domain["lower"], domain["upper"], domain["unit"]) == (0, 1, ""):
        return [100 * Fraction(value)]
    return [Fraction(value), 100 * Fraction(value) / (Fraction(domain["upper"]) - Fraction(domain["lower"]))]


def expected(found: dict[str, Any]) -> Iterator[float | Fraction]:
    """All figures of an experiment."""
    domain = found["domain"]
    if domain["kind"] in {"category", "vector"}:
        yield domain.get("categories", domain.get("coordinates"))
    if "lower" in domain and (domain["lower"], domain["upper"], domain["unit"]) != (0, 1, ""):
        yield from (domain["lower"], domain["upper"])
    yield from (Fraction(found[name]) for name in ("people", "epsilon") if name in found)
    if "error" in found:
        yield from error_in_words(found, found["error"])
    if "confidence" in found:
        yield from (100 * Fraction(str(found[name])) for name in ("confidence", "kept_in", "tolerance"))
    if "observer_at_most_sure" in found:
        yield from (Fraction(found["epsilon"]), 50, 50)
    if "price_of_no_trust" in found:
        yield from (price for price in found["price_of_no_trust"].values() if price > 1)
    yield from of_lines(found)


def of_lines(found: dict[str, Any]) -> Iterator[float | Fraction]:
    offered = (*found["mechanisms"], *found["for_comparison"])
    for line in (*offered, found["trusted_collector"]):
        yield from line.get("parameters", {}).values() if line in found["mechanisms"] else ()
        for target in ("reporters", "population"):
            if target in line:
                is_error = found["unknown"] == "error"
                yield from error_in_words(found, line[target]) if is_error else (Fraction(line[target]),)
        is_told = not (line is found["trusted_collector"] and found["unknown"] == "error")
        for target, relative in line.get("relative", {}).items() if is_told else ():
            yield from ((relative,) if relative >= 1 else (1, 1 / Fraction(relative)))
            differs = line["mechanism"] != found["auto"][target] and not 1 / 1.005 <= relative <= 1.005
            yield from (relative,) if differs and line in offered else ()


@pytest.mark.large
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("domain", "known"), QUESTIONS)
@pytest.mark.parametrize("confidence", [0.95, None])
def test_every_figure_of_a_plan_is_that_of_its_json(
    domain: Domain, known: dict[str, Any], width: int, confidence: float | None
) -> None:
    asked = {"people": None, "epsilon": None, "error": None} | known
    plan = solve(PlanQuestion(domain=domain, confidence=confidence, **asked))
    found = json.loads(json.dumps(plan.to_document()))
    words = rendered(plan_table.plan_blocks(plan), width, wraps=True)
    assert max(map(len, words.splitlines())) <= width
    assert "…" not in words
    sure = [100 * found["observer_at_most_sure"]] if "observer_at_most_sure" in found else []
    assert unmatched(words, expected(found), sure) == ([], [])


TASKS = (
    'id = "a"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 0\nupper = 4000\nunit = "g"\n',
    'id = "b"\nepsilon = "0.5"\nmechanism = "laplace"\n[domain]\nkind = "number"\nlower = -1e6\nupper = 1234567\n',
    'id = "c"\nepsilon = "2"\n[domain]\nkind = "bit"\n',
)


@pytest.mark.parametrize("document", TASKS)
def test_the_errors_of_a_task_are_those_of_its_json(document: str, tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(document, encoding="utf-8")
    task = read_task(tmp_path / "task.toml")
    found = json.loads(json.dumps(meaning(task)))
    values: list[float | Fraction] = []
    for people, error in found["expected_error"].items():
        width = Fraction(found["domain"].get("upper", 100)) - Fraction(found["domain"].get("lower", 0))
        is_number = found["domain"]["kind"] == "number"
        values += [int(people), *((error, 100 * Fraction(error) / width) if is_number else (100 * Fraction(error),))]
    text = rendered(explain.blocks(task))
    lines = [line for line in text.splitlines() if "±" in line]
    assert unmatched("\n".join(lines), values) == ([], [])
    others = [line for line in text.splitlines() if line.strip().startswith("alternatives")]
    assert unmatched(" ".join(others), found.get("alternatives", {}).values()) == ([], [])
    for end in ("lower", "upper"):
        assert f"{found['domain'].get(end, 0):,.0f}".replace(",", " ") in text or end not in found["domain"]


def test_every_figure_of_an_audit_is_that_of_its_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for options in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", ["hush", "audit", "laplace", "--samples", "3000", "--seed", "3", *options])
        with pytest.raises(SystemExit):
            main()
        printed.append(capsys.readouterr().out)
    words, found = printed[0], json.loads(printed[1])
    (one,) = found["audits"]
    rules = [Fraction(value) for rule in one["rule"] for value in (rule["guess"], figures(rule["if"])[0])]
    share = 100 * Fraction(one["right"], one["guesses"])
    chance, sure = 100 * (1 - Fraction(str(found["confidence"]))), 100 * Fraction(str(one["confidence"]))
    values = [one["declared"], *rules, share, one["guesses"], one["right"], one["shown"], one["samples"], chance, sure]
    epsilon, bound = Fraction(one["declared"]), one["epsilon_at_least"]
    right = [100 / (1 + math.exp(-float(value))) for value in (epsilon, bound)]
    best, other = sorted(one["tests"], key=lambda test: -float(test["epsilon_at_least"]))
    assert {name: best[name] for name in ("epsilon_at_least", "rule", "guesses", "right")}.items() <= one.items()
    values += [other["right"], other["guesses"], 100 * Fraction(other["right"], other["guesses"])]
    bounds = [bound, one["highest_bound"], *right, other["epsilon_at_least"]]
    assert unmatched(words, map(Fraction, values), bounds) == ([], [])


def shares(values: Iterable[float], scale: int) -> list[float | Fraction]:
    return [scale * Fraction(value) for value in values]


def of_a_number(found: dict[str, Any], scale: int) -> Iterator[float | Fraction]:
    """The figures of the rows that tell of values."""
    result = found["result"]
    yield from shares(found["truth"].values(), scale)
    yield from shares((result["mean"], abs(found["error"]["reporters"])), scale)
    for interval in result["intervals"].values():
        yield 100 * Fraction(str(result["confidence"]))
        yield from shares(interval, scale)


def of_parts(found: dict[str, Any], kind: str, scale: int) -> Iterator[float | Fraction]:
    yield 100 * Fraction(str(found["result"]["confidence"]))
    for fact, truth, error in zip(found["result"][kind], found["truth"][kind], found["error"][kind], strict=True):
        yield from shares((fact.get("frequency", fact.get("mean")),), scale)
        for target in ("reporters", "population"):
            yield from shares((truth[target], error[target]) if target in truth else (), scale)
            yield from shares(fact["intervals"][target], scale)


@cache
def simulated(name: str) -> Run:
    scenario = SCENARIOS[name]
    values = tuple(scenario.population.draw(150, np.random.default_rng(4)))
    experiment = Experiment(scenario=scenario, values=values, noise_seed=4, engine="memory", seed=4)
    return Run.of(experiment, asyncio.run(simulate(experiment)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["heights", "survey", "commute", "offices"])
def test_every_value_of_a_simulation_is_that_of_its_json(name: str, width: int) -> None:
    done = simulated(name)
    found = json.loads(json.dumps(done.to_document()))
    words = rendered(table.run_blocks(done), width, wraps=True)
    assert max(map(len, words.splitlines())) <= width
    kind = next((kind for kind in ("categories", "coordinates") if kind in found["truth"]), None)
    scale = 100 if name in {"survey", "commute"} else 1
    body, costs = words.split("memory\n", 1)[1].split("  reports  ", 1)
    if kind is None:
        assert unmatched(body, of_a_number(found, scale)) == ([], [])
    else:
        parts = body.split("  95 % intervals, reporters")[0]
        assert unmatched(parts, of_parts(found, kind, scale)) == ([], [])
    spent = [found["result"]["n"], 0, found["lost"], Fraction(found["epsilon_spent"]), found["clamped"]]
    spent += [found["elapsed_s"], found["reports_per_s"]]
    assert unmatched(costs.split("  noise")[0], spent) == ([], [])


def test_a_figure_that_is_off_is_noticed() -> None:
    assert unmatched("an error of 2 g", [200]) == (["2"], [200.0])
    assert unmatched("0.98", [0.986]) == (["0.98"], [0.986])
    assert unmatched("0.98", [], [0.986]) == ([], [])
