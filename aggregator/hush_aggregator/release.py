"""Release: the result document of a round, the same object on the retained topic, over HTTP and from `--json`."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hush_aggregator.estimate import Estimate
from hush_common.epsilon import decimal_text
from hush_common.refusal import Refusal
from hush_common.task import Task

__all__ = ["WHOLE", "document", "encode"]

WHOLE = "estimate"
"""The name in `failures` of an estimate that failed altogether."""


def document(
    task: Task,
    round_: int,
    estimate: Estimate,
    refused: Mapping[Refusal, int],
    *,
    confidence: float,
    updated_at: datetime,
) -> dict[str, Any]:
    """The result of one round. What is not known is left out: no nulls, and no mean of nothing.

    Args:
        task: the task.
        round_: the round, counted from 0.
        estimate: its estimate.
        refused: reports refused under the name of the task (all rounds), by reason.
        confidence: nominal coverage of the intervals.
        updated_at: aware time of the estimate.
    """
    result: dict[str, Any] = {
        "v": 1,
        "task": task.id,
        "digest": task.digest.hex(),
        "round": round_,
        "mechanism": task.mechanism,
        "epsilon": decimal_text(task.epsilon),
    }
    if task.rounds > 1:  # `epsilon` is the loss of all rounds together
        result["epsilon_per_round"] = decimal_text(task.epsilon_per_round)
    if task.repeat == "sticky":  # its rounds share their noise: whoever averages them gains nothing
        result["repeat"] = task.repeat
    if task.offers:
        result["offers"] = [decimal_text(epsilon) for epsilon in task.offers]
    if task.unit:
        result["unit"] = task.unit
    result |= {
        "confidence": confidence,
        "n": estimate.n,
        "refused": {reason.value: count for reason, count in refused.items()},
    }
    if task.enrolled is not None:
        result["enrolled"] = task.enrolled
    result |= _figures(estimate)
    result["updated_at"] = updated_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return result


def _figures(estimate: Estimate) -> dict[str, Any]:
    """What is known of the estimate, in the order of DESIGN: the primary mean first, second views after it."""
    known: dict[str, Any] = {
        "mean": estimate.mean,
        "stderr": dict(estimate.stderr),
        "stderr_plug_in": dict(estimate.stderr_plug_in),
        "intervals": _lists(estimate.intervals),
        "methods": dict(estimate.methods),
        "pooled": estimate.pooled,
        "categories": [_plain(fact) for fact in estimate.categories],
        "coordinates": [_plain(fact) for fact in estimate.coordinates],
        "consistent": list(estimate.consistent),
        "winsorised": estimate.winsorised,
        "manski": None if estimate.manski is None else list(estimate.manski),
        "worst_case_bias": dict(estimate.worst_case_bias),
        "replacement_bias": dict(estimate.replacement_bias),
        "monitor": estimate.monitor,
        "failures": dict(estimate.failures),
    }
    return {name: value for name, value in known.items() if value not in (None, {}, [])}


def _plain(fact: Mapping[str, Any]) -> dict[str, Any]:
    """One category or coordinate with JSON's lists for intervals."""
    return {
        name: _lists(value) if name.endswith("intervals") else list(value) if isinstance(value, tuple) else value
        for name, value in fact.items()
    }


def _lists(intervals: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {target: list(interval) for target, interval in intervals.items()}


def encode(result: Mapping[str, Any]) -> bytes:
    """The bytes of a document: keys sorted, no spaces, UTF-8, and never NaN or infinity."""
    return json.dumps(result, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
