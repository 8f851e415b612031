"""Decision: all that an answer will be, except its body; fixed before any value is read."""

from dataclasses import dataclass, field
from fractions import Fraction

from hush_common.mechanisms.sticky import Memory
from hush_common.task import Task


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer that will be given, whatever the value is.

    Args:
        task: what is answered.
        round: in which round.
        offer: index of the epsilon that is taken.
        cost: what the answer is charged.
        repeats: whether an earlier answer has paid for it: it comes from the memory of a sticky task.
        not_before: when the report may be sent, in milliseconds since 1970.
        delay: `not_before` less the time of the decision, in milliseconds.
        memory: of a sticky task; None where it is yet to be drawn, or the task has none.
    """

    task: Task
    round: int
    offer: int
    cost: Fraction
    repeats: bool
    not_before: int
    delay: int
    memory: Memory | None = field(default=None, repr=False)
