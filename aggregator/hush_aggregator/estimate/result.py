"""Result: what is known about a round, and its document on the retained topic and from `--json`."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from hush_aggregator.estimate.estimates import Estimate, Interval, Intervals, PartEstimate
from hush_aggregator.estimate.process import Failure
from hush_aggregator.estimate.tally import Tally
from hush_common.epsilon import decimal_text
from hush_common.task import Task, interval_text
from hush_common.untrusted import ESTIMATE, read_json
from hush_common.wire import Refusal

WHOLE = "estimate"
"""The name in `failures` of an estimate that failed altogether."""


MORE_THAN_ENROLLED = "more_than_enrolled"
"""The flag of a round with more reports than devices were asked: some sender answers for several, or makes them up."""


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """What is counted of a round."""

    task: Task  # what was asked
    round: int  # the round, counted from 0
    tally: Tally  # its reports
    refused: Mapping[Refusal, int]  # reports refused under the name of the task (all rounds), by reason
    closed: bool = False  # whether no device answers it any more
    final: bool = False  # whether nothing counts any more, and this is all of it
    released_at: datetime | None = None  # when, of a task with a release policy; None before its first release


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one round."""

    task: Task  #: what was asked
    round: int  #: the round, counted from 0
    estimate: Estimate  #: of that round
    refused: Mapping[Refusal, int]  #: reports refused under the name of the task (all rounds), by reason
    confidence: float  #: nominal coverage of the intervals
    updated_at: datetime  #: aware time of the estimate
    closed: bool = False  #: whether no device answers it any more; what is under way still counts
    final: bool = False  #: whether nothing counts any more: this is the last word

    @property
    def n(self) -> int:
        """Reports counted."""
        return self.estimate.n

    @property
    def mean(self) -> float | None:
        """The unbiased estimate; None where there is none, and for categories and vectors."""
        return self.estimate.mean

    @property
    def stderr(self) -> Mapping[str, float]:
        """Standard errors by target."""
        return self.estimate.stderr

    @property
    def intervals(self) -> Intervals:
        """Error bars by target."""
        return self.estimate.intervals

    @property
    def parts(self) -> tuple[PartEstimate, ...]:
        """The estimate of the number or bit, of each category, or of each coordinate, in the order of the task."""
        return self.estimate.parts

    @property
    def is_share(self) -> bool:
        """Whether its parts are shares, shown in per cent."""
        return self.task.domain.is_share

    @property
    def shared(self) -> PartEstimate:
        """Biases and methods that all parts have: those of the one number, or of every category; else an empty part."""
        shares_all = self.task.domain.is_share and self.parts
        return self.parts[0] if shares_all else self.estimate.single

    @property
    def flags(self) -> tuple[str, ...]:
        """What cannot be if everybody keeps to the rules; the figures stand as they are."""
        many = self.task.enrolled is not None and self.n > self.task.enrolled
        return (MORE_THAN_ENROLLED,) if many else ()

    @property
    def failures(self) -> Mapping[str, str]:
        """What could not be made of the whole, or of its one number, and why."""
        return {**self.estimate.failures, **self.estimate.single.failures}

    def to_document(self) -> dict[str, Any]:
        """The JSON object. What is not known is left out: no nulls, and no mean of nothing."""
        task = self.task
        document: dict[str, Any] = {
            "v": 1,
            "task": task.id,
            "digest": task.digest.hex(),
            "round": self.round,
            "mechanism": task.mechanism,
            "epsilon": decimal_text(task.epsilon),
        }
        if task.rounds > 1:  # `epsilon` is the loss of all rounds together
            document["epsilon_per_round"] = decimal_text(task.epsilon_per_round)
        if task.repeat == "sticky":  # its rounds share their noise: averaging them gains nothing
            document["repeat"] = task.repeat
        if task.offers:
            document["offers"] = [decimal_text(epsilon) for epsilon in task.offers]
        if task.unit:
            document["unit"] = task.unit
        document |= {
            "confidence": self.confidence,
            "n": self.n,
            "refused": {reason.value: count for reason, count in self.refused.items()},
        }
        if task.enrolled is not None:
            document["enrolled"] = task.enrolled
        if task.release_from is not None:
            document["release_from"] = task.release_from
        if task.release_every is not None:
            document["release_every"] = interval_text(task.release_every)
        if self.flags:
            document["flags"] = list(self.flags)
        document |= {name: True for name, true in (("closed", self.closed), ("final", self.final)) if true}
        document |= _known(_figures(self.estimate, task.domain.parts_field))
        document["updated_at"] = self.updated_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return document


def result_of(counted: RoundCounts, made: Estimate | Failure, confidence: float, updated_at: datetime) -> Result:
    """The result that has this estimate; of one that failed altogether the reports and the reason."""
    estimate = Estimate(counted.tally.n, failures={WHOLE: made.reason}) if isinstance(made, Failure) else made
    return Result(
        counted.task,
        counted.round,
        estimate,
        counted.refused,
        confidence,
        counted.released_at or updated_at,
        closed=counted.closed,
        final=counted.final,
    )


def encode(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document: keys sorted, no spaces, UTF-8, and never NaN or infinity."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


_NAMES_IN_DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "categories": ("label", "frequency"),
    "coordinates": ("name", "mean"),
}
"""What the name and the mean of a part are called in a document, by the field that holds the parts."""


def _figures(estimate: Estimate, parts_field: str) -> dict[str, Any]:
    """Return the figures of a document: the primary mean first, second views after it.

    A number or a bit is the document itself; of several parts what they share is in the document, too.
    """
    single = estimate.single
    shared = estimate.parts[0] if parts_field == "categories" and estimate.parts else single
    methods: dict[str, str] = {}
    for part in estimate.parts if parts_field == "categories" else (single,):
        methods |= part.methods
    return {
        "mean": single.mean,
        "stderr": dict(single.stderr),
        "stderr_plug_in": dict(single.stderr_plug_in),
        "intervals": _lists(single.intervals),
        "methods": methods,
        "pooled": None if estimate.pooled is None else asdict(estimate.pooled),
        **({parts_field: [_WRITERS[parts_field](part) for part in estimate.parts]} if parts_field else {}),
        "consistent": list(estimate.consistent),
        "winsorised": None if estimate.winsorised is None else asdict(estimate.winsorised),
        "manski": None if single.manski is None else list(single.manski),
        "worst_case_bias": dict(shared.worst_case_bias),
        "replacement_bias": dict(shared.replacement_bias),
        "monitor": estimate.monitor,
        "failures": {**estimate.failures, **single.failures},
    }


def _category(part: PartEstimate) -> dict[str, Any]:
    """Its intervals are there even if none could be made."""
    return {
        "label": part.name,
        "frequency": part.mean,
        **_known({"stderr": dict(part.stderr), "stderr_plug_in": dict(part.stderr_plug_in)}),
        "intervals": _lists(part.intervals),
        "joint_intervals": _lists(part.joint_intervals),
        **_known({"manski": None if part.manski is None else list(part.manski), "failures": dict(part.failures)}),
    }


def _coordinate(part: PartEstimate) -> dict[str, Any]:
    """Without reports nothing but its name; else its intervals are there even if none could be made."""
    head = {"name": part.name} | ({"unit": part.unit} if part.unit else {}) | {"n": part.n}
    if not part.n:
        return head
    return {
        **head,
        **_known({"mean": part.mean, "stderr": dict(part.stderr), "stderr_plug_in": dict(part.stderr_plug_in)}),
        "intervals": _lists(part.intervals),
        "methods": dict(part.methods),
        "joint_intervals": _lists(part.joint_intervals),
        "joint_methods": dict(part.joint_methods),
        **_known(
            {
                "failures": dict(part.failures),
                "worst_case_bias": dict(part.worst_case_bias),
                "manski": None if part.manski is None else list(part.manski),
                "replacement_bias": dict(part.replacement_bias),
            }
        ),
    }


_WRITERS: Mapping[str, Callable[[PartEstimate], dict[str, Any]]] = {"categories": _category, "coordinates": _coordinate}


def _known(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value not in (None, {}, [])}


def _lists(intervals: Intervals) -> dict[str, list[float]]:
    return {target: list(interval) for target, interval in intervals.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResult:
    """A result that somebody published, as far as it can be read: fields of another type than expected are left out."""

    document: Mapping[str, object] = field(repr=False)  # the JSON object as it was published
    estimate: Estimate  # its figures; `n` is 0 where it has none
    parts_field: str = ""  # `"categories"` or `"coordinates"`; empty for a number and a bit
    is_share: bool = False  # whether the parts are shares; a document does not tell a bit from a number
    task: str = ""  # id of the task
    digest: str = ""  # of the task, in hexadecimal digits
    round: int = 0  # the round
    mechanism: str = ""  # as it is named
    epsilon: str = ""  # in decimal digits
    confidence: float | None = None  # of the intervals, inside (0, 1); None where it is missing
    refused: Mapping[str, int] = field(default_factory=dict)  # reports refused, by reason, without zeros
    flags: tuple[str, ...] = ()  # as in `Result`
    closed: bool = False  # whether no device answers any more
    final: bool = False  # whether nothing counts any more
    updated_at: str = ""  # as it is written
    store: str = ""  # identity of the store that published it
    term: int | None = 0  # how often the task was taken over; None where it is not a count
    taken_from: str = ""  # identity of the store before that one
    lease: int | None = None  # under which one worker of several published it; None where it is not a count

    @property
    def failures(self) -> Mapping[str, str]:
        """What could not be made of the whole, or of its one number, and why."""
        return {**self.estimate.failures, **self.estimate.single.failures}

    def to_document(self) -> Mapping[str, object]:
        """The JSON object as it was published."""
        return self.document


_STORE = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
HIGHEST_TERM = 2**53 - 1
"""The last integer that every reader of JSON has."""
_MOST_REPORTS = 2**63 - 1


def read_result(payload: bytes) -> ForeignResult | None:
    """Read an untrusted message on the topic of an estimate; None if it is not a JSON object. Never raises."""
    try:
        document = read_json(payload, ESTIMATE)
    except ValueError:
        return None
    return result_in(document) if isinstance(document, dict) else None


def result_in(document: Mapping[str, object]) -> ForeignResult:
    """Read a result document that is parsed already; see `read_result`."""
    confidence, term = _number(document.get("confidence")), document.get("term", 0)
    parts_field = next((name for name in _NAMES_IN_DOCUMENTS if _objects(document, name)), "")
    flags = document.get("flags")
    refused = {reason: _count(count) or 0 for reason, count in _mapping(document, "refused").items()}
    return ForeignResult(
        document=document,
        estimate=_estimate_in(document, parts_field),
        parts_field=parts_field,
        is_share=parts_field == "categories",
        task=_text(document, "task"),
        digest=_named(document, "digest", _DIGEST),
        round=_count(document.get("round")) or 0,
        mechanism=_text(document, "mechanism"),
        epsilon=_text(document, "epsilon"),
        confidence=confidence,
        refused={reason: count for reason, count in refused.items() if count},
        flags=tuple(flag for flag in flags if isinstance(flag, str)) if isinstance(flags, list) else (),
        closed=document.get("closed") is True,
        final=document.get("final") is True,
        updated_at=_text(document, "updated_at"),
        store=_named(document, "store", _STORE),
        term=_count(0 if term is None else term, HIGHEST_TERM),
        taken_from=_named(document, "taken_from", _STORE),
        lease=_count(document.get("lease"), HIGHEST_TERM),
    )


def _estimate_in(document: Mapping[str, object], parts_field: str) -> Estimate:
    n = _count(document.get("n")) or 0
    failures, monitor = _texts(document, "failures"), _text(document, "monitor") or None
    if not parts_field:
        return Estimate(n, (_part_in(document, "", "mean", n),), monitor)
    name, mean = _NAMES_IN_DOCUMENTS[parts_field]
    shared = _texts(document, "methods")
    parts = (_part_in(part, _text(part, name), mean, n, shared) for part in _objects(document, parts_field))
    return Estimate(n, tuple(parts), monitor, failures=failures)


def _part_in(
    part: Mapping[str, object], name: str, mean: str, n: int, methods: Mapping[str, str] | None = None
) -> PartEstimate:
    own = _count(part.get("n"))
    return PartEstimate(
        name=name,
        unit=_text(part, "unit"),
        n=n if own is None else own,
        mean=_number(part.get(mean)),
        stderr=_numbers(part, "stderr"),
        stderr_plug_in=_numbers(part, "stderr_plug_in"),
        intervals=_intervals(part, "intervals"),
        methods={**(methods or {}), **_texts(part, "methods")},
        joint_intervals=_intervals(part, "joint_intervals"),
        joint_methods=_texts(part, "joint_methods"),
        failures=_texts(part, "failures"),
    )


def _objects(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = document.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _mapping(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(document: Mapping[str, object], name: str) -> str:
    found = document.get(name)
    return found if isinstance(found, str) else ""


def _texts(document: Mapping[str, object], name: str) -> dict[str, str]:
    return {key: text for key, text in _mapping(document, name).items() if isinstance(text, str)}


def _named(document: Mapping[str, object], name: str, legal: re.Pattern[str]) -> str:
    text = _text(document, name)
    return text if legal.fullmatch(text) else ""


def _count(value: object, most: int = _MOST_REPORTS) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(document: Mapping[str, object], name: str) -> dict[str, float]:
    found = {key: _number(value) for key, value in _mapping(document, name).items()}
    return {key: number for key, number in found.items() if number is not None}


def _intervals(document: Mapping[str, object], name: str) -> dict[str, Interval]:
    found: dict[str, Interval] = {}
    for target, ends in _mapping(document, name).items():
        numbers = [*map(_number, ends)] if isinstance(ends, list) else []
        if len(numbers) == len(("low", "high")) and numbers[0] is not None and numbers[1] is not None:
            found[target] = numbers[0], numbers[1]
    return found


def utc_now() -> datetime:
    return datetime.now(UTC)
