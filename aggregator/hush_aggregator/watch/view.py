"""View: what there is to see of a task, from the document of its result and, where it is known, the task.

A document that another program published may have anything anywhere: what is not of its kind is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hush_aggregator.estimate.estimates import ANYTIME, Intervals
from hush_aggregator.presentation import NumberFormat, interval_name
from hush_aggregator.report_problems import Verdict, report_problems
from hush_aggregator.result import ForeignResult, result_in
from hush_common.task import Task

Band: TypeAlias = tuple[float, float]
"""Lower and upper end."""

_SHARE: Band = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Line:
    """An estimate with its bands.

    Args:
        name: of a category or a coordinate; empty for the one number of a task.
        value: the estimate; None where there is none yet.
        methods: how the intervals were made.
        bands: by their names in the document: those that may be watched, or the final ones.
        axis: from where to where it can lie; None where nobody knows.
        wording: of its numbers.
    """

    name: str
    value: float | None
    methods: Mapping[str, str]
    bands: Mapping[str, Band]
    axis: Band | None
    wording: NumberFormat

    def number(self, value: float) -> str:
        """Return the digits that the standard error justifies."""
        return self.wording.number(value)

    def between(self, band: Band) -> str:
        """Return an interval with its unit."""
        return self.wording.interval(*band)


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown of a task.

    Args:
        id: of the task.
        title: what a person calls it; the id where nobody knows.
        n: reports counted; None where no estimate was seen.
        refused: reports refused, by reason.
        lines: the estimates, one or one for each part.
        joint: whether the bands are all right at once, with `confidence`.
        confidence: of the bands, inside (0, 1); None where it is not said.
        round: the round that this is about.
        rounds: how many there are; None where nobody knows.
        terms: mechanism and epsilon, in words.
        state: live, closed or final.
        warnings: what is wrong with the reports, so that nobody should rely on the estimate.
        remarks: what could not be made.
        updated_at: as the document has it.
    """

    id: str
    title: str
    n: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    lines: Sequence[Line] = ()
    joint: bool = False
    confidence: float | None = None
    round: int = 0
    rounds: int | None = None
    terms: str = ""
    state: str = "live"
    warnings: Sequence[Verdict] = ()
    remarks: Sequence[str] = ()
    updated_at: str = ""


def view_of(task_id: str, document: Mapping[str, object], task: Task | None) -> View:
    """What there is to see.

    Args:
        task_id: which task is watched.
        document: of its result; empty where none was seen.
        task: what was asked; None where it is not published, or cannot be read.
    """
    view = View(task_id, task.title if task is not None and task.title else task_id)
    if task is not None:
        view = replace(view, rounds=task.rounds)
    if not document:
        return view
    found = result_in(document)
    lines, joint = _lines(found, task)
    return replace(
        view,
        n=found.estimate.n,
        refused=found.refused,
        lines=lines,
        joint=joint,
        confidence=found.confidence,
        round=found.round,
        terms=", ".join(_terms(found)),
        state="final" if found.final else "closed" if found.closed else "live",
        warnings=report_problems(found.estimate.monitor, found.flags),
        remarks=[f"{target} could not be made: {reason}" for target, reason in found.failures.items()],
        updated_at=found.updated_at,
    )


def figures_of(view: View) -> str:
    """The figures in one line; of many parts the largest few."""
    shown = sorted(view.lines, key=lambda line: -(line.value or 0.0))[:5] if len(view.lines) > 5 else view.lines  # noqa: PLR2004
    words = [_in_words(line) for line in shown]
    more = len(view.lines) - len(shown)
    return ", ".join(words + ([f"and {more} more"] if more else []))


def _in_words(line: Line) -> str:
    if line.value is None:
        return f"{line.name}: no estimate yet" if line.name else "no estimate yet"
    bands = "".join(
        f" [{interval_name(name, line.methods.get(name, ''))} {line.wording.bare_interval(*ends)}]"
        for name, ends in line.bands.items()
    )
    return f"{line.name or 'mean'} {line.wording.value(line.value)}{bands}"


def _lines(found: ForeignResult, task: Task | None) -> tuple[Sequence[Line], bool]:
    """The parts with the intervals to show, and whether those hold for all parts at once."""
    known = {} if task is None else {part.name: part for part in task.domain.parts}
    is_share = found.is_share if task is None else task.domain.is_share
    parts = found.estimate.parts
    joint = is_share and any(_bands(part.joint_intervals, final=found.final) for part in parts)
    return [
        Line(
            part.name,
            part.mean,
            part.methods,
            _bands(part.joint_intervals if joint else part.intervals, final=found.final),
            known[part.name].axis if part.name in known else _SHARE if is_share else None,
            NumberFormat.of_part(part, is_share=is_share),
        )
        for part in parts
    ], joint


def _bands(intervals: Intervals, *, final: bool) -> dict[str, Band]:
    """While reports arrive those that hold at any time; the others are for one look, at the end."""
    return {target: ends for target, ends in intervals.items() if target.startswith(ANYTIME) is not final}


def _terms(found: ForeignResult) -> Iterator[str]:
    if found.mechanism:
        yield found.mechanism
    if found.epsilon:
        yield f"epsilon {found.epsilon}"
