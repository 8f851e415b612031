"""What is shown to a person agrees with the JSON of the same run, in every figure, to the digits shown."""

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import run
from made_results import result_of, single
from rendered import rendered

from hush import SCENARIOS, Run, Scenario, Task, plan, simulate
from hush_aggregator import Estimate
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate import process as estimation
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.publish.presentation import NumberFormat
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.task import make_task
from hush_common.wire import Refusal
from hush_simulations.display import plan_table, table
from hush_simulations.display.files import write_files
from hush_simulations.display.progress import caption, estimates_so_far, render
from hush_simulations.planning.plan import PlanQuestion, solve
from hush_simulations.results.run import auto_mechanism
from hush_simulations.scenarios.population import Frequencies

FIGURE = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?(?!\d)|[+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?")
WIDTHS = (60, 120)


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
@pytest.mark.parametrize(("domain", "known"), QUESTIONS)
@pytest.mark.parametrize("confidence", [0.95, None])
def test_every_figure_of_a_plan_is_that_of_its_json(
    domain: Domain, known: dict[str, Any], confidence: float | None
) -> None:
    asked = {"people": None, "epsilon": None, "error": None} | known
    solved = solve(PlanQuestion(domain=domain, confidence=confidence, **asked))
    found = json.loads(json.dumps(solved.to_document()))
    words = rendered(plan_table.plan_blocks(solved), 60, wraps=True)
    assert max(map(len, words.splitlines())) <= 60
    assert "…" not in words
    sure = [100 * found["observer_at_most_sure"]] if "observer_at_most_sure" in found else []
    assert unmatched(words, expected(found), sure) == ([], [])


def test_every_figure_of_an_audit_is_that_of_its_json(tmp_path: Path) -> None:
    asked = ["audit", "laplace", "--samples", "3000", "--seed", "3"]
    words, found = run(asked, tmp_path).out, json.loads(run([*asked, "--json"], tmp_path).out)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this noise is not private
        return simulate(name, engine="memory", clients=150, seed=4, deterministic_noise=True)


@pytest.mark.medium
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


def row(run: Run, label: str) -> str:
    lines = rendered(table.run_blocks(run)).splitlines()
    return next(line for line in lines if line.strip().startswith(label))


@pytest.mark.medium
def test_a_verdict_is_that_of_the_run() -> None:
    for seed in (3, 12):
        done = simulate("two-groups", engine="bulk", seed=seed)
        for target in ("reporters", "population"):
            (verdict,) = {"covers", "misses"} & set(row(done, f"95 % interval, {target}").split())
            assert (verdict == "covers") == done.covered[target]
    assert not simulate("two-groups", engine="bulk", seed=12).covered["population"]


@pytest.mark.medium
def test_refusals_clamped_values_and_rounds_are_in_the_table() -> None:
    flaky = simulate("flaky-links", engine="memory", seed=1)
    assert f"{flaky.result.refused[Refusal.DUPLICATE]} duplicate" in rendered(table.run_blocks(flaky))
    clamped = simulate(data=[1.0, 5.0, 9.0], domain={"kind": "number", "lower": 0, "upper": 6}, engine="bulk")
    assert "1" in row(clamped, "values clamped").split()
    rounds = simulate("heights", engine="bulk", rounds=3, clients=50, seed=1)
    numbers = [line.split()[:2] for line in rendered(table.run_blocks(rounds)).splitlines() if " reporters " in line]
    assert [one for one in numbers if one[0] in {"0", "1", "2", "all"}] == [
        ["0", "50"],
        ["1", "50"],
        ["2", "50"],
        ["all", "150"],
    ]


def with_labels(count: int) -> Scenario:
    labels = ["a label that is far too long for any row of a table", *(f"label {place}" for place in range(1, count))]
    document = {"id": "l", "epsilon": "1", "domain": {"kind": "category", "labels": labels}}
    return Scenario(document, Frequencies(tuple(labels), tuple(range(count, 0, -1))))


@pytest.mark.parametrize("count", [2, 100])
def test_a_table_of_categories_fits_and_cuts_nothing(count: int) -> None:
    text = rendered(table.run_blocks(simulate(with_labels(count), engine="bulk", clients=300, seed=1)), 60, wraps=True)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    assert "…" not in text
    assert all(word in " ".join(lines).replace(",", " ").split() for word in ("far", "too", "long", "table"))
    assert len([line for line in lines if line.strip().startswith(("a label that", "label "))]) == count
    assert len([line for line in lines if " to " in line and line.endswith(("yes", "no"))]) == 2 * count


@pytest.mark.parametrize("error", [0.00042, 0.42, 4.2, 42.0, 4.2e7])
def test_a_number_has_two_digits_of_its_error(error: float) -> None:
    wording = NumberFormat.of(result_of(SCENARIOS["heights"].task(), single(9, stderr={"reporters": error})))
    shown = float(wording.number(error).replace(" ", ""))
    assert shown == pytest.approx(error, rel=0.013)
    assert len(wording.number(error).replace(".", "").replace(" ", "").lstrip("0")) <= 8


def failing(monkeypatch: pytest.MonkeyPatch, target: str | None) -> None:
    """Let an interval fail, or every estimate."""

    def planted(task: Task, tally: Tally, confidence: float) -> Estimate:
        if target is None and tally.n:
            raise ArithmeticError
        made = estimate(task, tally, confidence)
        parts = [
            replace(
                one,
                intervals={name: ends for name, ends in one.intervals.items() if name != target},
                joint_intervals={name: ends for name, ends in one.joint_intervals.items() if name != target},
                failures={target or "": "not_finite"},
            )
            for one in made.parts
        ]
        return replace(made, parts=tuple(parts))

    monkeypatch.setattr(estimation, "estimate", planted)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["heights", "commute", "offices"])
def test_an_interval_that_failed_is_named_and_the_rest_is_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "reporters")
    done = simulate(name, engine="memory", clients=12, seed=1)
    text = rendered(table.run_blocks(done))
    assert done.result.n == 12
    assert "population" in text
    if name == "heights":
        assert "reporters (not_finite)" in text
    failing(monkeypatch, "anytime")
    assert estimates_so_far(simulate(name, engine="memory", clients=12, seed=1).result) == []


@pytest.mark.medium
def test_an_estimate_that_failed_leaves_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, None)
    done = simulate("heights", engine="memory", clients=12, seed=1)
    assert (done.result.n, done.result.mean) == (12, None)
    assert "estimate (not_finite)" in rendered(table.run_blocks(done))


@pytest.mark.medium
def test_the_interval_seen_live_is_the_anytime_one() -> None:
    done = simulate("heights", engine="memory", clients=60, seed=1)
    (line,) = estimates_so_far(done.result)
    assert line.remark == NumberFormat.of(done.result).interval(*done.result.intervals["anytime"])
    assert line.remark != NumberFormat.of(done.result).interval(*done.result.intervals["reporters"])
    assert estimates_so_far(result_of(SCENARIOS["heights"].task(), Estimate(0))) == []


@pytest.mark.medium
def test_the_most_frequent_categories_are_seen_live(monkeypatch: pytest.MonkeyPatch) -> None:
    done = simulate(with_labels(7), engine="memory", clients=60, seed=1)
    parts = sorted(done.result.parts, key=lambda part: -(part.mean or 0))
    lines = estimates_so_far(done.result)
    assert [line.label for line in lines] == [part.name for part in parts[:5]]
    for line, part in zip(lines, parts, strict=False):
        wording = NumberFormat.of_part(part, is_share=True)
        assert line.remark == wording.interval(*part.joint_intervals["anytime"])
    assert "5 of 7" in caption(done.result)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, render(done.result).plain.splitlines())) <= 40


@pytest.mark.medium
def test_kept_reports_have_no_true_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_simulations.display.style.png", lambda *_: b"")
    monkeypatch.setattr("hush_simulations.display.style.svg", lambda *_: b"")
    data = [71.125 + number / 64 for number in range(8)]
    options: dict[str, Any] = {"data": data, "domain": {"kind": "number", "lower": 0, "upper": 100}, "engine": "memory"}
    write_files(tmp_path, simulate(**options))
    text = (tmp_path / "reports.csv").read_text(encoding="utf-8")
    head, *rows = text.splitlines()
    assert (head, len(rows)) == ("round,report_id,epsilon,body,decoded", 8)
    assert not any(str(value) in text for value in data)
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["clients"] == 8
    with pytest.warns(UserWarning, match="NOT private"):
        write_files(tmp_path, simulate(**options, seed=3, deterministic_noise=True))
    head, *rows = (tmp_path / "reports.csv").read_text(encoding="utf-8").splitlines()
    assert head == "round,epsilon,body,decoded"  # an id, or the order, would tell whose report it is
    bodies = [int(row.split(",")[2]) for row in rows]
    assert bodies == sorted(bodies)


@pytest.mark.parametrize("epsilon", ["0.5", "2", "8"])
@pytest.mark.parametrize("mechanism", ["laplace", "multilevel", "table"])
def test_the_best_mechanism_is_that_of_the_planner(mechanism: str, epsilon: str) -> None:
    domain = {"kind": "number", "lower": 120, "upper": 220}
    found = plan(domain, people=500, epsilon=epsilon, confidence=None)
    (line,) = [one for one in found.mechanisms if one.mechanism == mechanism]
    best = auto_mechanism(make_task({"id": "t", "epsilon": epsilon, "mechanism": mechanism, "domain": domain}))
    assert best is not None
    assert best[0] == found.auto["reporters"]
    assert best[1] == pytest.approx(line.relative["reporters"], rel=1e-9)
    assert auto_mechanism(SCENARIOS["sleep"].task()) is None  # of several epsilons
