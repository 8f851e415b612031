"""Release: the result document of a round, the same object on the retained topic, over HTTP and from `--json`."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hush_aggregator.estimate import Estimate
from hush_common.epsilon import decimal_text
from hush_common.refusal import Refusal
from hush_common.task import Task

__all__ = ["document", "encode"]


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
        "confidence": confidence,
        "n": estimate.n,
        "refused": {reason.value: count for reason, count in refused.items()},
        "updated_at": updated_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    if task.rounds > 1:  # `epsilon` is the loss of all rounds together
        result["epsilon_per_round"] = decimal_text(task.epsilon_per_round)
    if task.unit:
        result["unit"] = task.unit
    if estimate.mean is not None:
        result["mean"] = estimate.mean
        result["stderr"] = dict(estimate.stderr)
        result["intervals"] = {target: list(interval) for target, interval in estimate.intervals.items()}
        result["methods"] = dict(estimate.methods)
    return result


def encode(result: Mapping[str, Any]) -> bytes:
    """The bytes of a document: keys sorted, no spaces, UTF-8, and never NaN or infinity."""
    return json.dumps(result, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
