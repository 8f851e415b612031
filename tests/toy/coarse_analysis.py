"""The same mechanism for an aggregator: how often each of its outputs was reported, as every finite law of a number."""

from hush_aggregator.estimate.mechanisms.bounded import (
    columns,
    estimate,
    fold,
    in_words,
    possible,
    said,
    spread,
    worst,
)

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]
