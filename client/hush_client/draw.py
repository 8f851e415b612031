"""Draw: the only place of a device where a value meets randomness.

It sees the decision, the value and the randomness, and nothing else: no policy, no ledger, no clock, no connection.
What it returns is stored and sent as the decision says, whatever it is. So whether a device answers, when, how long
the report is and what it costs cannot depend on the value; the report itself does, by at most e^epsilon.

The order of the draws is that of docs/wire.md: an index for each number that is missing, the mechanism, the id.
"""

from dataclasses import dataclass, field

from hush_client.decision import Decision
from hush_common.domain import Reading
from hush_common.mechanisms import perturb
from hush_common.mechanisms.sticky import Memory
from hush_common.rng import ReportRng
from hush_common.wire import Report

__all__ = ["Drawn", "draw"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A report that is yet to be stored.

    Args:
        report: the report.
        memory: that of a sticky task, if it is new or was completed now; to be kept in the same transaction.
    """

    report: Report
    memory: Memory | None = field(default=None, repr=False)


def draw(decision: Decision, value: Reading, randomness: ReportRng) -> Drawn:
    """The report that a decision makes of a value.

    Args:
        decision: what is answered.
        value: what the domain of the task has read, of any value or of none.
        randomness: where index, noise and id come from.
    """
    task = decision.task
    fresh = None
    if (mechanism := task.levelled) is None:
        index = task.domain.complete(value, randomness)
        body = perturb(task.randomizer, index, randomness, decision.offer)
    else:
        memory = decision.memory
        if memory is None:
            memory = fresh = Memory.draw(mechanism, randomness)
        elif memory.substitute is None:  # of before: it gets one now, whether a value is missing or not
            memory = fresh = memory.with_substitute(mechanism, randomness)
        body = memory.body(mechanism, *value.parts)
    return Drawn(Report.new(task.report_digest, decision.round, body, randomness), fresh)
