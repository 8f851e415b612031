"""Results that no aggregator made."""

from collections.abc import Mapping
from datetime import UTC, datetime

from hush_aggregator.estimate import Estimate
from hush_aggregator.result import Result
from hush_common.task import Task
from hush_common.wire import Refusal

__all__ = ["result_of"]


def result_of(
    task: Task,
    estimate: Estimate,
    *,
    round_: int = 0,
    refused: Mapping[Refusal, int] | None = None,
    confidence: float = 0.95,
) -> Result:
    return Result(task, round_, estimate, refused or {}, confidence, datetime(2026, 1, 1, tzinfo=UTC))
