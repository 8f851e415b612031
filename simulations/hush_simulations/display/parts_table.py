"""The table of categories or coordinates: a line for each target, and below it how many intervals cover the truth."""

from collections.abc import Iterator, Mapping, Sequence

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS
from hush_aggregator.estimate.estimates import Intervals
from hush_common.domain import CategoryDomain
from hush_common.formatting import exact, whole
from hush_common.terminal import Cell, Column, Fact, Row, Styled, Table
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.parts import parts_of
from hush_simulations.results.rounds import Round, Together
from hush_simulations.results.run import Run
from hush_simulations.results.score import Score

__all__ = ["judged_columns", "judged_rows", "parts_table", "rounds_of_parts", "verdicts"]

_TARGETS = (REPORTERS, POPULATION)


def judged_columns(confidence: float, unit: str = "") -> list[Column]:
    """The columns of an estimate beside the truth: about whom, what is true, error, interval, verdict."""
    interval = f"{exact(confidence, scale=100)} % interval" + (f", {unit}" if unit else "")
    return [
        Column("about"),
        Column("true", right=True),
        Column("off", right=True),
        Column(interval, right=True),
        Column("covers"),
    ]


def judged_rows(
    head: Sequence[Cell], targets: Mapping[str, str], score: Score, intervals: Intervals, wording: NumberFormat
) -> Iterator[Row]:
    """A row for each interval, and for each truth.

    Args:
        head: the first cells of the first row.
        targets: of whom there may be a row, each with its name.
        score: the truth, the errors, and whether the intervals cover.
        intervals: by target.
        wording: of the numbers.
    """
    for target, name in targets.items():
        known, interval = score.truth.get(target), intervals.get(target)
        if known is None and interval is None:
            continue
        off, verdict = score.error.get(target), score.covered.get(target)
        cells: list[Cell] = [
            name,
            "" if known is None else wording.number(known),
            "" if off is None else wording.off(off),
            "" if interval is None else wording.bare_interval(*interval),
            "" if interval is None else _said(verdict),
        ]
        yield Row([*head, *cells])
        head = [""] * len(head)


def _said(verdict: bool | None) -> Cell:
    return "unknown" if verdict is None else Styled("yes", "green") if verdict else Styled("no", "red")


def parts_table(done: Round | Together) -> Table:
    """Each part with its estimate, and a line for each target: truth, error, and the interval by itself."""
    what = "share in %" if isinstance(done.result.task.domain, CategoryDomain) else "mean of"
    columns = [Column(what), Column("estimate", right=True), *judged_columns(done.result.confidence)]
    rows: list[Row] = []
    for part in parts_of(done):
        name = f"{part.name} ({part.unit})" if part.unit else part.name
        estimate = "none" if part.estimate is None else part.wording.number(part.estimate)
        targets = {target: target for target in _TARGETS}
        rows += judged_rows((name, estimate), targets, part.score, part.intervals, part.wording)
    return Table(columns, rows, grouped=2)


def verdicts(run: Run) -> Iterator[Fact]:
    """How many of the intervals cover, each by itself; whether the joint ones do; and the bands watched live."""
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    for target, label in (
        *((target, f"{confidence} intervals, {target}") for target in _TARGETS),
        (ANYTIME, f"{confidence} confidence sequences"),
        (ANYTIME_POPULATION, f"{confidence} confidence sequences, population"),
    ):
        if share := _share(run.score.parts, target):
            yield Fact(label, f"{share} cover", "individual coverage")
    for target in _TARGETS:
        if target in run.score.joint:
            value = "all cover" if run.score.joint[target] else "not all cover"
            yield Fact(f"{confidence} joint, {target}", value, "simultaneous coverage")


def rounds_of_parts(run: Run) -> Table:
    """One row a round: reports, the largest error, and how many intervals cover."""
    columns = [
        Column("round", right=True, named=True),
        Column("reports", right=True),
        Column("largest error"),
        Column("reporters cover"),
        Column("population cover"),
        Column("sequences cover"),
    ]
    rows = [
        Row(
            [
                str(done.result.round),
                whole(done.result.n),
                _largest_error(done),
                *(_share(done.score.parts, target) for target in (*_TARGETS, ANYTIME)),
            ]
        )
        for done in run.rounds
    ]
    return Table(columns, rows)


def _share(parts: Mapping[str, Score], target: str) -> str:
    judged = [part.covered[target] for part in parts.values() if target in part.covered]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _largest_error(done: Round) -> str:
    """Of shares the largest error itself; of coordinates, whose units differ, that of most standard errors."""
    known = [part for part in parts_of(done) if REPORTERS in part.score.error]
    if not known:
        return "none"
    part = max(known, key=lambda one: abs(one.score.error[REPORTERS]) / (max(one.stderr.values(), default=0.0) or 1))
    unit = "points" if isinstance(done.result.task.domain, CategoryDomain) else part.unit
    return f"{part.wording.off(part.score.error[REPORTERS])} {unit}".rstrip() + f" ({part.name})"
