"""Which published estimates of a round a store keeps: the last one of an hour, or of a day once it is a week old."""

# A step says how many reports were counted before the end of an hour, and the estimate of them that was published last.
# Its time is that end, which is true of hours and days alike. Two steps of a round differ by ten reports or more, so
# that none of them tells when a single report came.

from collections.abc import Callable, Sequence
from datetime import datetime

from hush_aggregator.store.base import DamagedError, PublishedStep, Step

HOUR = 3600
DAY = 24 * HOUR

LEAST = 10
"""The number of further reports before the next step."""

HOURLY_DAYS = 7
"""The number of days after which only whole days are kept."""


def end_of_hour(time: datetime) -> int:
    """Return the end of the hour (UTC) of an aware time, in seconds since 1970."""
    return int(time.timestamp()) // HOUR * HOUR + HOUR


def hours_until(now: int) -> int:
    """Return the midnight (UTC) before which steps are of whole days."""
    return now // DAY * DAY - HOURLY_DAYS * DAY


def put_step(
    new: PublishedStep,
    *,
    last: Callable[[], Step | None],
    delete_from: Callable[[int], object],
    insert: Callable[[Step], object],
) -> bool:
    """Put an estimate among the steps of its round, inside a transaction; return whether a step changed.

    Within its hour it takes the place of an earlier one. The last word of a round is kept, too: if it has fewer than
    ten further reports, it takes the place of the last step.

    Args:
        new: the estimate.
        last: the last step of the round.
        delete_from: delete the steps of the round with this time, or a later one.
        insert: add a step.
    """
    step, there = new.step, last()
    if there is not None and step.n <= there.n:
        return False
    if there is not None and there.until > step.until:  # the clock was ahead when those were made
        delete_from(step.until + 1)
        there = last()
    counted = 0 if there is None else there.n
    is_replaced = there is not None and (there.until == step.until or (new.is_final and step.n < counted + LEAST))
    if not is_replaced and step.n < counted + LEAST:
        return False
    if there is not None and is_replaced:
        delete_from(there.until)
    insert(step)
    return True


def checked_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a round in the order of time; raise DamagedError if they cannot be what was written."""
    counted = until = 0
    for step in steps:
        low, high = step.interval or (0.0, 0.0)
        if step.until % HOUR or step.until <= until or step.n < counted + LEAST or not low <= high:
            raise DamagedError("a step")
        counted, until = step.n, step.until
    return list(steps)


StepRow = tuple[int, int, float | None, float | None, float | None, float]
"""The columns of a step, in the order of both kinds of stores: until, n, mean, both ends, confidence."""


def step_from(row: StepRow) -> Step:
    """Return a step from its columns."""
    until, n, mean, low, high, confidence = row
    return Step(until, n, mean, None if low is None or high is None else (low, high), confidence)


def step_values(step: Step) -> StepRow:
    """Return the columns of a step."""
    low, high = step.interval or (None, None)
    return step.until, step.n, step.mean, low, high, step.confidence
