"""The table of categories or coordinates: one row each, and below it how many intervals cover the truth."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS
from hush_aggregator.estimate.estimates import ByTarget, Intervals
from hush_common.domain import CategoryDomain
from hush_common.figures import exact, whole
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.results.run import Round, Run
from hush_simulations.results.score import Score

__all__ = ["Part", "parts_of", "parts_table", "rounds_of_parts", "verdicts"]

_DIGITS = 2  # of the standard error: a row has to fit into 80 columns
_SHORTEST, _FIGURES = 12, 65  # columns of a terminal: for a name at least, and for what stands beside it
_MOST_ROWS = 40
_TARGETS = (REPORTERS, POPULATION)
_COLUMNS = ("true", "estimate", "off", *_TARGETS)
_FEW_COLUMNS = ("true", "estimate", REPORTERS)
"""On a narrow terminal; whether the others cover is said below the table all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One category or coordinate, for eyes.

    Args:
        name: its label or name.
        score: it beside the truth.
        wording: of its numbers.
        estimate: its frequency or mean; None where there is none.
        intervals: each for itself alone.
        stderr: by target.
        unit: of a coordinate.
    """

    name: str
    score: Score
    wording: NumberFormat
    estimate: float | None = None
    intervals: Intervals = field(default_factory=dict)
    stderr: ByTarget = field(default_factory=dict)
    unit: str = ""


def parts_of(done: Round) -> list[Part]:
    """The parts of a round, in the order of the task; where the estimate failed, the truth alone."""
    scores = done.score.parts
    if isinstance(done.result.task.domain, CategoryDomain):
        found = [
            Part(
                name=one.label,
                score=scores[one.label],
                wording=NumberFormat.share(_largest(one.stderr), _DIGITS),
                estimate=one.frequency,
                intervals=one.intervals,
                stderr=one.stderr,
            )
            for one in done.result.categories
        ]
        plain = NumberFormat.share(None, _DIGITS)
    else:
        found = [
            Part(
                name=one.name,
                score=scores[one.name],
                wording=NumberFormat.measured("", _largest(one.stderr), _DIGITS),
                estimate=one.mean,
                intervals=one.intervals,
                stderr=one.stderr,
                unit=one.unit,
            )
            for one in done.result.coordinates
        ]
        plain = NumberFormat.measured("", None, _DIGITS)
    return found or [Part(name=name, score=score, wording=plain) for name, score in scores.items()]


def parts_table(run: Run, width: int) -> Table:
    """One row a part: truth, estimate, error, and the interval of either target by itself; a `!` where it misses."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    what = "share in %" if isinstance(run.task.domain, CategoryDomain) else "mean of"
    table.add_column(what, no_wrap=True, overflow="ellipsis", max_width=max(_SHORTEST, width - _FIGURES))
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    shown = _COLUMNS if width >= _SHORTEST + _FIGURES else _FEW_COLUMNS
    for name in shown:
        title = f"{confidence} {name}" if name in _TARGETS else name
        table.add_column(title, justify="right", no_wrap=True)
    parts = parts_of(run.last)
    for place in _shown(run, parts):
        first, *cells = _cells(parts[place])
        table.add_row(first, *(cell for column, cell in zip(_COLUMNS, cells, strict=True) if column in shown))
    if len(parts) > _MOST_ROWS:
        table.add_row(f"… {len(parts) - _MOST_ROWS} more")
    return table


def verdicts(run: Run) -> Iterator[tuple[str, str, str]]:
    """How many of the intervals cover, each by itself; whether the joint ones do; and the bands watched live."""
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    for target, label in (
        *((target, f"{confidence} intervals, {target}") for target in _TARGETS),
        (ANYTIME, f"{confidence} confidence sequences"),
        (ANYTIME_POPULATION, f"{confidence} confidence sequences, population"),
    ):
        if share := _share(run.score.parts, target):
            yield label, share, "individual coverage"
    for target in _TARGETS:
        if target in run.score.joint:
            yield (
                f"{confidence} joint, {target}",
                "all" if run.score.joint[target] else "not all",
                "simultaneous coverage",
            )


def rounds_of_parts(run: Run) -> Table:
    """One row a round: reports, the largest error, and how many intervals cover."""
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    for name in ("round", "accepted", "largest error", "reporters cover", "population cover"):
        table.add_column(name, justify="right")
    for done in run.rounds:
        table.add_row(
            str(done.result.round),
            whole(done.result.n),
            _largest_error(done),
            *(_share(done.score.parts, target) for target in _TARGETS),
        )
    return table


def _shown(run: Run, parts: list[Part]) -> list[int]:
    """The parts that get a row: of categories those of the largest frequencies, of coordinates the first."""
    places = range(len(parts))
    if isinstance(run.task.domain, CategoryDomain):
        return sorted(sorted(places, key=lambda place: -(parts[place].estimate or 0))[:_MOST_ROWS])
    return list(places[:_MOST_ROWS])


def _cells(part: Part) -> Iterator[Text]:
    wording, score = part.wording, part.score
    yield Text(f"{part.name} ({part.unit})" if part.unit else part.name)
    known = score.truth.get(REPORTERS, score.truth.get(POPULATION))
    yield Text("" if known is None else wording.number(known))
    yield Text("none" if part.estimate is None else wording.number(part.estimate))
    off = score.error.get(REPORTERS)
    yield Text("" if off is None else wording.off(off))
    for target in _TARGETS:
        interval = part.intervals.get(target)
        missed = score.covered.get(target) is False
        text = f"{wording.number(interval[0])} to {wording.number(interval[1])}" if interval else ""
        yield Text(text + (" !" if missed else ""), style="red" if missed else "")


def _share(parts: Mapping[str, Score], target: str) -> str:
    judged = [part.covered[target] for part in parts.values() if target in part.covered]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _largest(stderr: ByTarget) -> float | None:
    return max(stderr.values(), default=None)


def _largest_error(done: Round) -> str:
    """Of shares the largest error itself; of coordinates, whose units differ, that of most standard errors."""
    known = [part for part in parts_of(done) if REPORTERS in part.score.error]
    if not known:
        return "none"
    part = max(known, key=lambda one: abs(one.score.error[REPORTERS]) / (_largest(one.stderr) or 1))
    unit = "points" if isinstance(done.result.task.domain, CategoryDomain) else part.unit
    return f"{part.wording.off(part.score.error[REPORTERS])} {unit}".rstrip() + f" ({part.name})"
