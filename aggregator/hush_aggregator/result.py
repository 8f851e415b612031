"""Result: what is known about a round, and its document on the retained topic and from `--json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from hush_aggregator.estimate.estimates import CategoryEstimate, CoordinateEstimate, Estimate, Intervals
from hush_aggregator.estimation import Failure
from hush_aggregator.tally import Tally
from hush_common.epsilon import decimal_text
from hush_common.task import Task
from hush_common.wire import Refusal

__all__ = ["MORE_THAN_ENROLLED", "WHOLE", "Counted", "Result", "encode", "result_of"]

WHOLE = "estimate"
"""The name in `failures` of an estimate that failed altogether."""


MORE_THAN_ENROLLED = "more_than_enrolled"
"""The flag of a round with more reports than devices were asked: some sender answers for several, or makes them up."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of a round.

    Args:
        task: what was asked.
        round: the round, counted from 0.
        tally: its reports.
        refused: reports refused under the name of the task (all rounds), by reason.
        closed: whether no device answers it any more.
        final: whether nothing counts any more.
    """

    task: Task
    round: int
    tally: Tally
    refused: Mapping[Refusal, int]
    closed: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one round.

    Args:
        task: what was asked.
        round: the round, counted from 0.
        estimate: of that round.
        refused: reports refused under the name of the task (all rounds), by reason.
        confidence: nominal coverage of the intervals.
        updated_at: aware time of the estimate.
        closed: whether no device answers it any more; what is under way still counts.
        final: whether nothing counts any more: this is the last word.
    """

    task: Task
    round: int
    estimate: Estimate
    refused: Mapping[Refusal, int]
    confidence: float
    updated_at: datetime
    closed: bool = False
    final: bool = False

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
    def categories(self) -> tuple[CategoryEstimate, ...]:
        """In the order of the labels."""
        return self.estimate.categories

    @property
    def coordinates(self) -> tuple[CoordinateEstimate, ...]:
        """In the order of the task."""
        return self.estimate.coordinates

    @property
    def flags(self) -> tuple[str, ...]:
        """What cannot be if everybody keeps to the rules; the figures stand as they are."""
        many = self.task.enrolled is not None and self.n > self.task.enrolled
        return (MORE_THAN_ENROLLED,) if many else ()

    @property
    def failures(self) -> Mapping[str, str]:
        """What could not be made, and why."""
        return self.estimate.failures

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
        if task.repeat == "sticky":  # its rounds share their noise: whoever averages them gains nothing
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
        if self.flags:
            document["flags"] = list(self.flags)
        document |= {name: True for name, true in (("closed", self.closed), ("final", self.final)) if true}
        document |= _known(_figures(self.estimate))
        document["updated_at"] = self.updated_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return document


def result_of(counted: Counted, made: Estimate | Failure, confidence: float, updated_at: datetime) -> Result:
    """The result that has this estimate; of one that failed altogether the reports and the reason."""
    estimate = Estimate(counted.tally.n, failures={WHOLE: made.reason}) if isinstance(made, Failure) else made
    return Result(
        counted.task,
        counted.round,
        estimate,
        counted.refused,
        confidence,
        updated_at,
        closed=counted.closed,
        final=counted.final,
    )


def encode(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document: keys sorted, no spaces, UTF-8, and never NaN or infinity."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _figures(estimate: Estimate) -> dict[str, Any]:
    """The primary mean first, second views after it."""
    return {
        "mean": estimate.mean,
        "stderr": dict(estimate.stderr),
        "stderr_plug_in": dict(estimate.stderr_plug_in),
        "intervals": _lists(estimate.intervals),
        "methods": dict(estimate.methods),
        "pooled": None if estimate.pooled is None else asdict(estimate.pooled),
        "categories": [_category(one) for one in estimate.categories],
        "coordinates": [_coordinate(one) for one in estimate.coordinates],
        "consistent": list(estimate.consistent),
        "winsorised": None if estimate.winsorised is None else asdict(estimate.winsorised),
        "manski": None if estimate.manski is None else list(estimate.manski),
        "worst_case_bias": dict(estimate.worst_case_bias),
        "replacement_bias": dict(estimate.replacement_bias),
        "monitor": estimate.monitor,
        "failures": dict(estimate.failures),
    }


def _category(one: CategoryEstimate) -> dict[str, Any]:
    """Its intervals are there even if none could be made."""
    return {
        "label": one.label,
        "frequency": one.frequency,
        **_known({"stderr": dict(one.stderr), "stderr_plug_in": dict(one.stderr_plug_in)}),
        "intervals": _lists(one.intervals),
        "joint_intervals": _lists(one.joint_intervals),
        **_known(
            {"manski": None if one.manski is None else list(one.manski), "failures": dict(one.failures)},
        ),
    }


def _coordinate(one: CoordinateEstimate) -> dict[str, Any]:
    """Without reports nothing but its name; else its intervals are there even if none could be made."""
    head = {"name": one.name} | ({"unit": one.unit} if one.unit else {}) | {"n": one.n}
    if not one.n:
        return head
    return {
        **head,
        **_known({"mean": one.mean, "stderr": dict(one.stderr), "stderr_plug_in": dict(one.stderr_plug_in)}),
        "intervals": _lists(one.intervals),
        "methods": dict(one.methods),
        "joint_intervals": _lists(one.joint_intervals),
        "joint_methods": dict(one.joint_methods),
        **_known(
            {
                "failures": dict(one.failures),
                "worst_case_bias": dict(one.worst_case_bias),
                "manski": None if one.manski is None else list(one.manski),
                "replacement_bias": dict(one.replacement_bias),
            }
        ),
    }


def _known(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value not in (None, {}, [])}


def _lists(intervals: Intervals) -> dict[str, list[float]]:
    return {target: list(interval) for target, interval in intervals.items()}
