"""Results that no aggregator made."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hush import Task
from hush_aggregator import Estimate, PartEstimate, Result
from hush_common.wire import Refusal

__all__ = ["changed", "result_of", "single"]


def result_of(
    task: Task,
    estimate: Estimate,
    *,
    round_: int = 0,
    refused: Mapping[Refusal, int] | None = None,
    confidence: float = 0.95,
) -> Result:
    return Result(task, round_, estimate, refused or {}, confidence, datetime(2026, 1, 1, tzinfo=UTC))


def single(n: int, mean: float | None = None, **of_the_part: Any) -> Estimate:  # noqa: ANN401 - fields of a part
    """An estimate of a number or a bit."""
    return Estimate(n, (PartEstimate(n=n, mean=mean, **of_the_part),))


def changed(made: Estimate, **of_the_part: Any) -> Estimate:  # noqa: ANN401 - as above
    """The same estimate of a number or a bit, with other fields of its one part."""
    (part,) = made.parts
    return replace(made, parts=(replace(part, **of_the_part),))
