"""Whether `hush conform` accuses a device of answering before a task opens, on a machine with other work too."""

import time

import pytest

from hush_simulations.conformance.broker import Publication, Reply
from hush_simulations.conformance.checks.rounds import _is_early


@pytest.mark.parametrize(
    ("opened_s", "arrived_s", "is_early"),
    [(-5.0, 1.0, True), (7.0, 8.0, True), (7.0, 6.0, False)],
    ids=["before it opens", "before it opened, seen late", "after it opened, seen late"],
)
def test_only_a_report_that_arrives_before_the_opening_is_early(
    opened_s: float, arrived_s: float, *, is_early: bool
) -> None:
    """Both moments are so many seconds ago when somebody looks."""
    at = time.monotonic() - arrived_s
    one = Publication(at, 1, "topic", b"", qos=1, is_retained=False, is_duplicate=False, reply=Reply.ACKNOWLEDGE)
    assert _is_early([one], -opened_s) == is_early
    assert not _is_early([], -opened_s)
