"""Decision: everything about an answer except its body, fixed before any value is read."""

from dataclasses import dataclass, field
from fractions import Fraction

from hush_common.mechanisms.sticky import Memory
from hush_common.task import Task


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer that will be given, whatever the value is."""

    task: Task
    round: int
    offer: int  # index of the epsilon that is taken
    cost: Fraction  # what the answer is charged
    repeats: bool  # whether an earlier answer has paid for it: it comes from the memory of a sticky task
    not_before: int  # when the report may be sent, in milliseconds since 1970
    delay: int  # `not_before` less the time of the decision, in milliseconds
    memory: Memory | None = field(default=None, repr=False)  # of a sticky task, once it is drawn
