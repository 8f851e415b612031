"""Draw: the only place of a device where a value meets randomness.

It sees the decision, the value and the randomness: no policy, no ledger, no clock, no connection. Its result is stored
and sent as the decision says, whatever it is. So whether a device answers, when, how long the report is and what it
costs cannot depend on the value; the report itself does, by at most e^epsilon.

The order of the draws is that of docs/wire.md: an index for each number that is missing, the mechanism, the id.
"""

from dataclasses import dataclass, field

from hush_client.privacy.decision import Decision
from hush_common.domain import ParsedValue
from hush_common.mechanisms.sticky import Memory
from hush_common.rng import ReportRng
from hush_common.wire import Report


@dataclass(frozen=True, slots=True)
class Drawn:
    """A report, and the memory of a sticky task if it is new, to store in the same transaction."""

    report: Report
    memory: Memory | None = field(default=None, repr=False)


def draw(decision: Decision, value: ParsedValue, randomness: ReportRng) -> Drawn:
    """Return the report of a value, usable or not; index, noise and id come from `randomness`."""
    task, new = decision.task, None
    if (mechanism := task.memoized_mechanism) is None:
        index = task.domain.complete(value, randomness)
        body = task.perturb(index, randomness, decision.offer)
    else:
        if (memory := decision.memory) is None:
            memory = new = Memory.draw(mechanism, randomness)
        body = memory.body(mechanism, *value.parts)
    return Drawn(Report.new(task.report_digest, decision.round, body, randomness), new)
