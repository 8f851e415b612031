"""The table of categories or coordinates: one row each, and below it how often the error bars are right."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hush_common.figures import exact, whole
from hush_simulations.display.number_format import NumberFormat

__all__ = ["kind_of", "parts_table", "rounds_of_parts", "verdicts"]

_DIGITS = 2  # of the standard error: a row has to fit into 80 columns
_SHORTEST, _FIGURES = 12, 65  # columns of a terminal: for a name at least, and for what stands beside it
_MOST_ROWS = 40
_TARGETS = ("reporters", "population")
_COLUMNS = ("true", "estimate", "off", *_TARGETS)
_FEW_COLUMNS = ("true", "estimate", "reporters")
"""On a narrow terminal; whether the others cover is said below the table all the same."""
_NAMES = {"categories": "label", "coordinates": "name"}


def kind_of(found: Mapping[str, Any]) -> str | None:
    """`"categories"` or `"coordinates"` if the object of a simulation has parts."""
    return next((kind for kind in _NAMES if kind in found["truth"]), None)


def parts_table(found: Mapping[str, Any], kind: str, width: int) -> Table:
    """One row a part: truth, estimate, error, and the interval of either target by itself; a `!` where it misses."""
    result = found["result"]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    what = "share in %" if kind == "categories" else "mean of"
    table.add_column(what, no_wrap=True, overflow="ellipsis", max_width=max(_SHORTEST, width - _FIGURES))
    confidence = f"{exact(result['confidence'], scale=100)} %"
    shown = _COLUMNS if width >= _SHORTEST + _FIGURES else _FEW_COLUMNS
    for name in shown:
        title = f"{confidence} {name}" if name in _TARGETS else name
        table.add_column(title, justify="right", no_wrap=True)
    facts = result.get(kind) or [{}] * len(found["truth"][kind])
    rows = list(zip(facts, *(found[view][kind] for view in ("truth", "covered", "error")), strict=True))
    for place in _shown(rows):
        first, *cells = _cells(*rows[place])
        table.add_row(first, *(cell for column, cell in zip(_COLUMNS, cells, strict=True) if column in shown))
    if len(rows) > _MOST_ROWS:
        table.add_row(f"… {len(rows) - _MOST_ROWS} more")
    return table


def verdicts(found: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, str]]:
    """How many of the intervals cover, each by itself; whether the joint ones do; and the bands watched live."""
    confidence = f"{exact(found['result']['confidence'], scale=100)} %"
    singles = [fact.get("intervals", {}) for fact in found["covered"][kind]]
    for target, label in (
        *((target, f"{confidence} intervals, {target}") for target in _TARGETS),
        ("anytime", f"{confidence} bands, watched live"),
        ("anytime_population", f"{confidence} bands, watched, population"),
    ):
        judged = [single[target] for single in singles if target in single]
        if judged:
            yield label, f"{sum(judged)} of {len(judged)}", "cover one by one"
    joint: Mapping[str, bool] = found["covered"].get("joint", {})
    for target in _TARGETS:
        if target in joint:
            yield f"{confidence} joint, {target}", "all" if joint[target] else "not all", "cover at once"


def rounds_of_parts(rounds: Sequence[Mapping[str, Any]], kind: str) -> Table:
    """One row a round: reports, the largest error, and how many intervals cover."""
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    for name in ("round", "accepted", "largest error", "reporters cover", "population cover"):
        table.add_column(name, justify="right")
    for done in rounds:
        table.add_row(
            str(done["result"]["round"]),
            whole(done["result"]["n"]),
            _largest_error(done, kind),
            *(_share(done["covered"][kind], target) for target in _TARGETS),
        )
    return table


def _shown(rows: Sequence[tuple[Mapping[str, Any], ...]]) -> list[int]:
    """The parts that get a row: all if they are few, else those of the largest estimates; coordinates as they come."""
    places = sorted(range(len(rows)), key=lambda place: -float(rows[place][0].get("frequency", 0)))
    return sorted(places[:_MOST_ROWS])


def _cells(
    fact: Mapping[str, Any], truth: Mapping[str, Any], covered: Mapping[str, Any], error: Mapping[str, Any]
) -> Iterator[Text]:
    wording = _wording(fact, truth)
    name = str(truth.get("label", truth.get("name")))
    unit = fact.get("unit", "")
    yield Text(f"{name} ({unit})" if unit else name)
    known = truth.get("reporters", truth.get("population"))
    yield Text("" if known is None else wording.number(known))
    estimate = fact.get("frequency", fact.get("mean"))
    yield Text("none" if estimate is None else wording.number(estimate))
    off = error.get("reporters")
    yield Text("" if off is None else wording.off(off))
    for target in _TARGETS:
        interval = fact.get("intervals", {}).get(target)
        missed = covered.get("intervals", {}).get(target) is False
        text = f"{wording.number(interval[0])} to {wording.number(interval[1])}" if interval else ""
        yield Text(text + (" !" if missed else ""), style="red" if missed else "")


def _wording(fact: Mapping[str, Any], truth: Mapping[str, Any]) -> NumberFormat:
    stderr = max(fact.get("stderr", {}).values(), default=None)
    if "label" in truth:
        return NumberFormat.share(stderr, _DIGITS)
    return NumberFormat.measured("", stderr, _DIGITS)


def _share(parts: Sequence[Mapping[str, Any]], target: str) -> str:
    judged = [part["intervals"][target] for part in parts if target in part.get("intervals", {})]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _largest_error(done: Mapping[str, Any], kind: str) -> str:
    """Of shares the largest error itself; of coordinates, whose units differ, that of most standard errors."""
    rows = zip(done["error"][kind], done["result"].get(kind, []), strict=False)
    known = [(part, fact) for part, fact in rows if "reporters" in part]
    if not known:
        return "none"
    part, fact = max(
        known, key=lambda one: abs(one[0]["reporters"]) / (max(one[1].get("stderr", {}).values(), default=1) or 1)
    )
    wording = _wording(fact, part)
    unit = "points" if "label" in part else fact.get("unit", "")
    name = part.get("label", part.get("name"))
    return f"{wording.off(part['reporters'])} {unit}".rstrip() + f" ({name})"
