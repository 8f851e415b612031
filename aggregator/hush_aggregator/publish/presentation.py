"""How a result is shown to people: names of intervals, digits, and rows."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Interval,
    PartEstimate,
)
from hush_aggregator.estimate.result import ForeignResult, Result
from hush_common.formatting import fixed, significant


class ReportProblem(NamedTuple):
    """A verdict on the reports."""

    word: str
    sentence: str


MONITOR: dict[str | None, ReportProblem] = {
    "ok": ReportProblem("Looks right", "The reports vary as much as the noise of this task makes them."),
    "too_little_noise": ReportProblem(
        "Too little noise",
        "The reports vary less than the noise of this task makes them. Some programs that answer add less noise than "
        "they must, and protect their people less than is stated here.",
    ),
    "outliers": ReportProblem(
        "Impossible reports",
        "No honest group of devices gives such reports: a program has a mistake, or somebody makes reports up. The "
        "estimate may be far off.",
    ),
    None: ReportProblem("Too early to say", "Fewer than 100 reports show nothing about the noise in them."),
}
"""What the monitor says of the reports."""

_FLAGS = {
    "more_than_enrolled": ReportProblem(
        "Too many reports",
        "More reports came than devices were asked: some sender answers for several, or makes them up.",
    )
}


def report_problems(monitor: str | None, flags: Iterable[str]) -> list[ReportProblem]:
    """Return what is wrong with the reports; nothing if they look right, or are too few to say.

    Args:
        monitor: as the document of a result has it; an unknown verdict is a problem, too.
        flags: as the document of a result has them.
    """
    found = [] if monitor in (None, "ok") else [MONITOR.get(monitor, ReportProblem(_plain(monitor), ""))]
    return found + [_FLAGS.get(flag, ReportProblem(_plain(flag), "")) for flag in flags]


def _plain(code: str) -> str:
    return code.replace("_", " ").capitalize()


_NAMES = {
    REPORTERS: "reporters",
    POPULATION: "population",
    ENROLLED: "all enrolled",
    ANYTIME: "at any time",
    ANYTIME_POPULATION: "population, at any time",
}
INTERVALS = (REPORTERS, POPULATION, ENROLLED, ANYTIME, ANYTIME_POPULATION)
"""The order of intervals wherever several are listed."""


def interval_name(target: str, method: str = "") -> str:
    """Return what people call an interval, on every screen, page and picture."""
    if target == ANYTIME and method.startswith((REPORTERS, POPULATION)):
        return f"{method.partition('-')[0]}, {_NAMES[ANYTIME]}"
    return _NAMES.get(target, target)


DIGITS = 2
"""Significant digits of the standard error that set an estimate's decimals (JCGM 100:2008, 7.2.6: at most two)."""
MOST_DECIMALS = 12
LARGEST_PLAIN, LARGEST_DIGITS = 1e9, 6
"""From this size on a number is shown with an exponent, and with this many significant digits."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the values of one task are written: times `factor` (100 for a share in per cent), then the unit."""

    unit: str
    factor: int
    decimals: int

    @classmethod
    def of(cls, result: Result) -> "NumberFormat":
        """Return the format of a number or a bit: as many decimals as show two digits of its standard error."""
        return cls.of_part(result.estimate.single, is_share=result.task.domain.is_share, unit=result.task.unit)

    @classmethod
    def of_part(cls, part: PartEstimate, *, is_share: bool, unit: str = "") -> "NumberFormat":
        """Return the format of a part: as many decimals as show two digits of its largest standard error."""
        error = max(part.stderr.values(), default=None)
        return cls.share(error, DIGITS) if is_share else cls.measured(part.unit or unit, error, DIGITS)

    @classmethod
    def share(cls, error: float | None, digits: int) -> "NumberFormat":
        """Return the format of a share, in per cent, with `digits` digits of its standard error."""
        return cls("%", 100, _decimals(1.0 if error is None else 100 * error, digits))

    @classmethod
    def measured(cls, unit: str, error: float | None, digits: int) -> "NumberFormat":
        """Return the format of a number with a unit, with `digits` digits of its standard error."""
        return cls(unit, 1, _decimals(1.0 if error is None else error, digits))

    def number(self, value: float) -> str:
        """The bare number."""
        if abs(value * self.factor) >= LARGEST_PLAIN:
            return significant(value, LARGEST_DIGITS, scale=self.factor)
        return fixed(value, self.decimals, scale=self.factor)

    def off(self, value: float) -> str:
        """How far off an estimate is, with its sign."""
        if abs(value * self.factor) >= LARGEST_PLAIN:
            return f"{'+' if value > 0 else ''}{self.number(value)}"
        return fixed(value, self.decimals, scale=self.factor, sign=True)

    def value(self, value: float) -> str:
        """The number with its unit."""
        return f"{self.number(value)} {self.unit}".rstrip()

    def distance(self, one: float, other: float) -> str:
        """How far apart two values are; shares are points apart, not per cent."""
        return f"{self.number(abs(one - other))} {'points' if self.unit == '%' else self.unit}".rstrip()

    def bare_interval(self, lower: float, upper: float) -> str:
        """Both ends, without a unit."""
        return f"{self.number(lower)} to {self.number(upper)}"

    def interval(self, lower: float, upper: float) -> str:
        """Both ends with one unit."""
        return f"{self.number(lower)} to {self.value(upper)}"


class PageNumberFormat(NumberFormat):
    """A number format for pages and pictures: with a minus sign (U+2212).

    Terminals and attributes for programs have a hyphen, which other programs read as a minus.
    """

    __slots__ = ()

    def number(self, value: float) -> str:
        return with_minus(super().number(value))


def with_minus(number: str) -> str:
    """Return the text of a number with minus signs in the place of hyphens."""
    return number.replace("-", "\N{MINUS SIGN}")


def _decimals(error: float, digits: int) -> int:
    decimals = digits - 1 - math.floor(math.log10(error)) if error > 0 else digits - 1
    return min(max(decimals, 0), MOST_DECIMALS)


COLUMNS = ("task", "round", "n", "part", "value", "unit", "target", "stderr", "low", "high", "final")
"""`part` is a category or a coordinate, empty for a number or a bit; `target` is whose mean the interval is for."""

Figure = str | int | float


@dataclass(frozen=True, slots=True)
class PartRow:
    """One interval of one part of a result; of a part without intervals a row without a target."""

    result: Result | ForeignResult
    part: PartEstimate
    round: str | int
    target: str = ""
    interval: Interval | None = None

    @property
    def figures(self) -> dict[str, Figure]:
        """The cells of `COLUMNS` for programs: keys of documents, and every digit."""
        low, high = ("", "") if self.interval is None else self.interval
        found = self._head | {"part": self.part.name, "value": _known(self.part.mean), "unit": self._unit}
        found |= {"target": self.target, "stderr": _known(self.part.stderr.get(self.target)), "low": low, "high": high}
        return {name: found[name] for name in COLUMNS}

    @property
    def shown(self) -> dict[str, str]:
        """The cells of `COLUMNS` for people: names of intervals, and the digits that the standard error justifies."""
        wording = NumberFormat.of_part(self.part, is_share=self.result.is_share, unit=self._unit)
        numbers = {"value": self.part.mean, "stderr": self.part.stderr.get(self.target)}
        numbers |= dict(zip(("low", "high"), self.interval or (None, None), strict=True))
        found = {name: str(one) for name, one in self._head.items()}
        found |= {name: "" if number is None else wording.number(number) for name, number in numbers.items()}
        found |= {"part": self.part.name, "unit": "" if self.part.mean is None else wording.unit}
        found["target"] = interval_name(self.target, self.part.methods.get(self.target, ""))
        return {name: found[name] for name in COLUMNS}

    @property
    def _unit(self) -> str:
        return self.part.unit or (self.result.task.unit if isinstance(self.result, Result) else "")

    @property
    def _head(self) -> dict[str, Figure]:
        result = self.result
        task = result.task.id if isinstance(result, Result) else result.task
        n = self.part.n if self.part.name else result.estimate.n
        return {"task": task, "round": self.round, "n": n, "final": "yes" if result.final else ""}


def rows_of(result: Result | ForeignResult, round_: str = "") -> Iterator[PartRow]:
    """Return the rows of one round: one for each interval of each part, in the order of the task."""
    name = round_ or result.round
    for part in result.estimate.parts or (PartEstimate(n=result.estimate.n),):
        if not part.intervals:
            yield PartRow(result, part, name)
        for target, interval in part.intervals.items():
            yield PartRow(result, part, name, target, interval)


def _known(number: float | None) -> Figure:
    return "" if number is None else number
