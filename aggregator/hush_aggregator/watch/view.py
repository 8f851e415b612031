"""View: what there is to see of a task, from the document of its result and, where it is known, the task.

A document that another program published may have anything anywhere: what is not of its kind is left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hush_aggregator.report_problems import Verdict, report_problems
from hush_common.domain import BitDomain, NumberDomain, VectorDomain
from hush_common.task import Task

ANYTIME = "anytime"
"""Begins the name of an interval that may be watched as reports arrive."""

Band: TypeAlias = tuple[float, float]
"""Lower and upper end."""

_SHARE: Band = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Line:
    """An estimate with its bands.

    Args:
        name: of a category or a coordinate; empty for the one number of a task.
        value: the estimate; None where there is none yet.
        unit: of it; may be empty.
        bands: by their names in the document: those that may be watched, or the final ones.
        axis: from where to where it can lie; None where nobody knows.
    """

    name: str
    value: float | None
    unit: str
    bands: Mapping[str, Band]
    axis: Band | None


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


def figure(value: float) -> str:
    """A figure with the digits that `hush results` prints."""
    return f"{value:.6g}"


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
    final = document.get("final") is True
    lines, joint = _lines(document, task, final=final)
    return replace(
        view,
        n=_count(document.get("n")) or 0,
        refused={reason: count for reason, one in _mapping(document, "refused") if (count := _count(one))},
        lines=lines,
        joint=joint,
        confidence=_number(document.get("confidence")),
        round=_count(document.get("round")) or 0,
        terms=", ".join(_terms(document)),
        state="final" if final else "closed" if document.get("closed") is True else "live",
        warnings=_warnings(document),
        remarks=tuple(_remarks(document)),
        updated_at=_text(document, "updated_at"),
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
    bands = "".join(f" [{name} {figure(low)} to {figure(high)}]" for name, (low, high) in line.bands.items())
    return f"{line.name or 'mean'} {figure(line.value)} {line.unit}".rstrip() + bands


def _lines(document: Mapping[str, object], task: Task | None, *, final: bool) -> tuple[Sequence[Line], bool]:
    domain = None if task is None else task.domain
    categories, coordinates = _parts(document, "categories"), _parts(document, "coordinates")
    if categories:
        joint = any(_bands(part, "joint_intervals", final=final) for part in categories)
        return [
            Line(
                _text(part, "label"),
                _number(part.get("frequency")),
                "",
                _bands(part, "joint_intervals" if joint else "intervals", final=final),
                _SHARE,
            )
            for part in categories
        ], joint
    if coordinates:
        axes = {}
        if isinstance(domain, VectorDomain):
            axes = {one.name: (float(one.lower), float(one.upper)) for one in domain.coordinates}
        return [
            Line(
                _text(part, "name"),
                _number(part.get("mean")),
                _text(part, "unit"),
                _bands(part, "intervals", final=final),
                axes.get(_text(part, "name")),
            )
            for part in coordinates
        ], False
    axis: Band | None = None
    if isinstance(domain, NumberDomain):
        axis = (float(domain.lower), float(domain.upper))
    elif isinstance(domain, BitDomain):
        axis = _SHARE
    mean, bands = _number(document.get("mean")), _bands(document, "intervals", final=final)
    return [Line("", mean, _text(document, "unit"), bands, axis)], False


def _bands(figures: Mapping[str, object], name: str, *, final: bool) -> dict[str, Band]:
    """While reports arrive those that may be watched; the others are for one look, at the end."""
    found = {}
    for target, ends in _mapping(figures, name):
        if isinstance(ends, list) and len(ends) == len(("low", "high")) and target.startswith(ANYTIME) is not final:
            low, high = map(_number, ends)
            if low is not None and high is not None:
                found[target] = (low, high)
    return found


def _terms(document: Mapping[str, object]) -> Iterator[str]:
    if mechanism := _text(document, "mechanism"):
        yield mechanism
    if epsilon := _text(document, "epsilon"):
        yield f"epsilon {epsilon}"


def _warnings(document: Mapping[str, object]) -> Sequence[Verdict]:
    flags = document.get("flags")
    known = [flag for flag in flags if isinstance(flag, str)] if isinstance(flags, list) else []
    return report_problems(_text(document, "monitor") or None, known)


def _remarks(document: Mapping[str, object]) -> Iterator[str]:
    for target, reason in _mapping(document, "failures"):
        if isinstance(reason, str):
            yield f"{target} could not be made: {reason}"


def _parts(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    parts = document.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _mapping(figures: Mapping[str, object], name: str) -> list[tuple[str, object]]:
    value = figures.get(name)
    return list(value.items()) if isinstance(value, dict) else []


def _text(figures: Mapping[str, object], name: str) -> str:
    value = figures.get(name)
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
