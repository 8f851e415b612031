"""What `hush audit` can audit: the mechanisms of hush by name, those of a task, and a function of yours.

The reports of hush's own mechanisms come from their own `perturb`, which every device calls. The inputs
are two values as different as can be: both bounds, no and yes, the first and the last category, all coordinates low and
all high.
"""

import importlib
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import inf, isnan
from numbers import Real
from typing import Any, cast

import numpy as np

from hush_common.domain import Domain
from hush_common.epsilon import decimal_text
from hush_common.errors import HushError, OptionError
from hush_common.mechanisms import Mechanism, Offers
from hush_common.mechanisms.registry import best, known, named
from hush_common.rng import Rng
from hush_common.task import Task


@dataclass(frozen=True, slots=True)
class ReportView:
    """A function of a report that an audit uses: post-processing, which cannot add to epsilon.

    It returns a float for numbers, or another value that can be compared, for names.
    """

    of: str
    look: Callable[[Any], Hashable]


def views_of_mechanism(part: Mechanism, domain: Domain) -> list[ReportView]:
    """Return the views of a mechanism's reports, which it defines itself."""
    return [ReportView(of, look) for of, look in part.aspects(domain).items()]


def numeric(report: object) -> float | None:
    """Return a report as a float, or None if it is not a number. Numbers with one float are equal; NaN is infinity."""
    if not isinstance(report, Real | Decimal | np.bool_):
        return None
    try:
        number = float(report)
    except OverflowError:  # beyond all floats
        number = inf if isinstance(report, int | Fraction) and report > 0 else -inf
    return inf if isnan(number) else number


def views_of_reports(reports: Sequence[object]) -> list[ReportView]:
    """Return views of unknown reports: numbers as such; of tuples the whole, and every part."""
    if all(numeric(one) is not None for one in reports) and not all(isinstance(one, bool) for one in reports):
        return [ReportView("the report", numeric)]
    hash(reports[0])  # what cannot be compared says so
    views = [ReportView("the report", _whole)]
    if all(isinstance(one, tuple) for one in reports):
        shortest = min(len(one) for one in reports if isinstance(one, tuple))
        for place in range(shortest):
            parts = [one[place] for one in reports if isinstance(one, tuple)]
            as_numbers = all(numeric(part) is not None for part in parts)
            views.append(ReportView(f"part {place + 1} of the report", _part(place, as_numbers=as_numbers)))
    return views


def _whole(report: object) -> Hashable:
    hash(report)
    return report


def _part(place: int, *, as_numbers: bool) -> Callable[[object], Hashable]:
    def look(report: object) -> Hashable:
        part = report[place] if isinstance(report, tuple) and len(report) > place else None
        number = numeric(part) if as_numbers else None
        return number if as_numbers and number is not None else _whole(part)

    return look


@dataclass(frozen=True, slots=True)
class Subject:
    """A mechanism under audit: its claimed epsilon, if any, two inputs in words, and a fresh report of input 0 or 1."""

    name: str
    declared: Fraction | None
    inputs: tuple[str, str]
    draw: Callable[[int], object]
    views: Callable[[Sequence[object]], list[ReportView]]


def mechanism_subject(name: str, epsilon: Fraction, categories: int, coordinates: int, rng: Rng) -> Subject:
    """Return a mechanism of hush by name, with the parameters that a task would get."""
    kind = named(name)
    if kind is None:
        names = ", ".join(other.name for other in known())
        raise OptionError("MECHANISM", f"unknown mechanism {name[:60]!r}; choose {names}, or write module:function")
    if not kind.serves([epsilon]):
        least = decimal_text(kind.smallest())
        raise OptionError("--epsilon", f"no {name} is shipped for {decimal_text(epsilon)}, below {least}")
    size = {"categories": categories, "coordinates": coordinates}.get(kind.fits.parts_field, 1)
    domain = cast("Domain", kind.fits.of_size(size))
    return _of_hush(name, domain, best(kind, domain, epsilon), 0, rng)


def task_subjects(task: Task, rng: Rng) -> list[Subject]:
    """Return the mechanism of a task, once for each epsilon that it offers."""
    randomizer = task.randomizer
    offers = len(randomizer.parts) if isinstance(randomizer, Offers) else 1
    return [_of_hush(task.id, task.domain, randomizer, offer, rng) for offer in range(offers)]


def _of_hush(name: str, domain: Domain, randomizer: Mechanism | Offers, offer: int, rng: Rng) -> Subject:
    part = randomizer.parts[offer] if isinstance(randomizer, Offers) else randomizer
    (low, lower), (high, upper) = domain.extremes
    indices = domain.index(lower), domain.index(upper)

    def draw(side: int) -> object:
        if isinstance(randomizer, Offers):
            return randomizer.perturb(indices[side].index, rng, offer)[1:]
        return randomizer.perturb(indices[side].index, rng)

    parameters = ", ".join(f"{field} {getattr(part, field)}" for field in part.described)
    title = name if name == part.name else f"{name} ({part.name})"
    return Subject(
        name=f"{title}, {parameters}" if parameters else title,
        declared=part.epsilon,
        inputs=(low, high),
        draw=draw,
        views=lambda _: views_of_mechanism(part, domain),
    )


def own_subject(path: str, inputs: tuple[object, object], declared: Fraction | None) -> Subject:
    """Return a function of yours from a value to a report: a number, a bool, a text, or a tuple of them."""
    function = _load(path)

    def draw(side: int) -> object:
        try:
            return function(inputs[side])
        except Exception as error:
            raise HushError(f"{path}: raised {type(error).__name__} on {inputs[side]!r}: {_line(error)}") from error

    def views(reports: Sequence[object]) -> list[ReportView]:
        try:
            return views_of_reports(reports)
        except TypeError:
            kind = type(reports[0]).__name__
            raise HushError(f"{path}: its reports are of type {kind}; return a number, bool, text or tuple") from None

    return Subject(path, declared, (repr(inputs[0]), repr(inputs[1])), draw, views)


def _load(path: str) -> Callable[[object], object]:
    module_name, _, function_name = path.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the file that a person has just written lies here
    try:
        found: object = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise HushError(f"{path}: cannot be imported, {type(error).__name__}: {_line(error)}") from error
    if not callable(found):
        raise HushError(f"{path}: is not a function; name one that takes a value and returns its report")
    return found


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
