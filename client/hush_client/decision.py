"""Decision: all that an answer will be, except its body; fixed before any value is looked at."""

from dataclasses import dataclass, field
from fractions import Fraction

from hush_common.mechanisms.sticky import Memory
from hush_common.task import Task

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer that will be given, whatever the value is.

    Args:
        task: what is answered.
        round: in which round.
        offer: the number of the epsilon that is taken.
        cost: what the answer is charged.
        repeats: whether it comes from the memory of a sticky task that an earlier answer has paid for.
        memory: that memory; None where one is yet to be drawn, or the task has none.
        not_before: when the report may be sent, in milliseconds since 1970.
        delay: how far that is from the time of the decision, in milliseconds.
    """

    task: Task
    round: int
    offer: int
    cost: Fraction
    repeats: bool
    memory: Memory | None = field(repr=False)
    not_before: int
    delay: int
