# ruff: noqa: RUF001 - as the documents have them
"""Write the figures of README.md and docs/*.md between their markers: people, coverage, widths, privacy odds.

    <!-- figures: NAME -->
    …
    <!-- end -->

    python tests/tools/figures.py                     all but those of docs/coverage.md: a minute
    python tests/tools/figures.py coverage            also those: half an hour, unless the cells are known
    python tests/tools/figures.py coverage bits 8     print the worst cells of some cases, and write nothing
    python tests/tools/figures.py --check             write nothing; end with 1 where a document has other figures

`audits` and `leaks` show what `tests/benchmarks/bench_audit.py` found.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil, exp, floor, log, log10, sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from covering.asked import arms
from covering.grid import all_cells, shown
from covering.numbers import flat, scale_of, single
from covering.tables import BLOCKS as OF_COVERAGE
from tools.table_program import OPTIMA

from hush_aggregator.estimate import ANYTIME, REPORTERS
from hush_common.domain import GRID_STEPS, NumberDomain
from hush_common.mechanisms import Channel, Multilevel
from hush_common.mechanisms.multilevel import best_levels, best_sticky_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.registry import choose
from hush_common.task import make_task
from hush_simulations.auditing.audit import default_samples

__all__ = ["BLOCKS", "outdated"]

ROOT = Path(__file__).resolve().parents[2]
AUDITS = Path(__file__).with_name("audits.json")
MARKED = re.compile(r"(<!-- figures: ([a-z -]+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], *rows: Iterable[str]) -> str:
    first = list(head)
    lines = [first, ["---"] * len(first), *map(list, rows)]
    return "\n".join("|---" * len(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def apart(number: float) -> str:
    """Thousands apart from 1000 on."""
    return f"{ceil(number):,}".replace(",", " ")


def privacy_odds() -> str:
    """The largest posterior of an observer who was 50/50, rounded up; and the error that this costs."""
    people, losses = 500, {"0.1": 0.1, "0.5": 0.5, "1": 1.0, "ln 3": log(3), "2": 2.0, "4": 4.0}
    sure = [ceil(1000 * exp(epsilon) / (1 + exp(epsilon)) - 1e-9) / 10 for epsilon in losses.values()]
    return table(
        ["ε", *losses],
        ["at most sure", *(f"{share:.1f} %" for share in sure)],
        [
            f"error of a mean of {people} numbers (rms, share of R)",
            *(f"{sqrt(2 / people) / epsilon:.3f}" for epsilon in losses.values()),
        ],
    )


def people() -> str:
    """For a root mean square error of 0.01 of a share."""
    error = 0.01
    rows = [(e, sqrt(2) / (error * e), exp(e) / (exp(e) - 1) ** 2 / error**2, 2 / (error * e) ** 2) for e in (0.1, 1.0)]
    return table(
        ["ε", "trusted collector, √2/(αε)", "randomized response, e^ε/((e^ε − 1)²α²)", "laplace on every bit, 2/(αε)²"],
        *([f"{epsilon:g}", *(apart(round(number, 6)) for number in some)] for epsilon, *some in rows),
    )


def half_widths() -> str:
    """Of `reporters` and `anytime` at 95 %, in units of b."""
    task = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
    sizes = (1, 2, 5, 10, 100, 1000, 10_000)
    rows = []
    for name, target in (("one look, h", REPORTERS), ("any time", ANYTIME)):
        found = [arms(task, flat(task, n), 0.95, target)[0] / scale_of(single(task)) for n in sizes]
        rows.append([name, *(f"{half:.{5 - floor(log10(half))}f}" for half in found)])
    return table(["n", *map(str, sizes)], *rows)


def optimum() -> str:
    """The worst-case variance of what `auto` takes and of `multilevel`, against the linear program."""
    known: dict[str, float] = json.loads(OPTIMA.read_text(encoding="utf-8"))
    least = {Fraction(epsilon): variance for epsilon, variance in known.items()}
    some = ("0.34", "0.5", "0.7", "1", "2", "3", "4", "4.2", "5", "6", "7", "8")
    epsilons = [Fraction(epsilon) for epsilon in some]
    return table(
        ["ε", *some],
        ["optimum, values in [−1, 1]", *(f"{4 * least[e]:.4g}" for e in epsilons)],
        ["`auto`, times the optimum", *(f"{_by_auto(e) / least[e]:.3f}" for e in epsilons)],
        ["`multilevel`", *(f"{_by_levels(e) / least[e]:.3f}" for e in epsilons)],
    )


def _by_levels(epsilon: Fraction) -> float:
    return float(Multilevel(epsilon, GRID_STEPS, best_levels(epsilon)).exact_worst_variance)


def _by_auto(epsilon: Fraction) -> float:
    if choose(NumberDomain(0.0, 1.0), [epsilon])[1] is None:
        return _by_levels(epsilon)
    made = shipped_at(epsilon)
    return float(Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights).exact_worst_variance)


def rounds() -> str:
    """The error of 1000 numbers in one round, each round asked anew or sticky."""
    asked, rows = (4, 12, 30, 365), []
    for total in (1, 2, 4):
        pairs = []
        for times in asked:
            fresh, levels = Fraction(total, times), best_sticky_levels(Fraction(total), times)
            each = _error(fresh, best_levels(fresh)), _error(Fraction(total, levels + 1), levels)
            pairs.append(", ".join(f"{e:.{3 if e < 1 else 2 if e < 10 else 1}f}" for e in each))
        rows.append([str(total), *pairs])
    return table(["ε", f"T = {asked[0]}: fresh, sticky", *(f"T = {times}" for times in asked[1:])], *rows)


def _error(epsilon: Fraction, levels: int, n: int = 1000) -> float:
    return sqrt(Multilevel(epsilon, GRID_STEPS, levels).worst_variance / n)


def audits() -> str:
    found: dict[str, dict[str, tuple[int, int]]] = json.loads(AUDITS.read_text(encoding="utf-8"))["audits"]
    names = {"subset_selection": "subset_selection, 8 categories", "vector": "vector, 4 coordinates"}
    return table(
        ["ε, reports of each value", *map(_sized, found["laplace"])],
        *(
            [names.get(name, name), *(f"{caught}, {false}" for caught, false in line.values())]
            for name, line in found.items()
        ),
    )


def leaks() -> str:
    found = json.loads(AUDITS.read_text(encoding="utf-8"))
    return table(
        ["ε, reports of each value", *(f"{share:.4f}".rstrip("0").rstrip(".") for share in found["shares"])],
        *([_sized(epsilon), *map(str, caught)] for epsilon, caught in found["leaks"].items()),
    )


def _sized(epsilon: str) -> str:
    return f"{epsilon}, {apart(default_samples(float(epsilon)))}"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "privacy odds": privacy_odds,
    "people": people,
    "half-widths": half_widths,
    "optimum": optimum,
    "rounds": rounds,
    "audits": audits,
    "leaks": leaks,
}
"""What a document may have between its markers."""


def of_coverage() -> dict[str, str]:
    cells = all_cells()
    return {name: "\n".join(block(cells)).rstrip() for name, block in OF_COVERAGE.items()}


def rewritten(more: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
    """Each document with the text that it has, and the one that it should have.

    Raises:
        KeyError: a document has a marker with an unknown name.
    """
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))):
        text = path.read_text(encoding="utf-8")

        def filled(match: re.Match[str]) -> str:
            name = match[2]
            if name in OF_COVERAGE and name not in more:
                return match[0]
            return match[1] + (more[name] if name in more else BLOCKS[name]()) + match[3]

        yield path, text, MARKED.sub(filled, text)


def outdated() -> list[str]:
    """The documents whose figures are not those of today; those of coverage are not computed."""
    return [path.name for path, text, right in rewritten({}) if text != right]


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        sys.exit(f"run python tests/tools/figures.py: {', '.join(found)}" if (found := outdated()) else 0)
    if len(arguments) > 1:
        for line in shown(arguments[1:]):
            print(line, flush=True)
        return
    for path, text, right in rewritten(of_coverage() if arguments else {}):
        if text != right:
            path.write_text(right, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
