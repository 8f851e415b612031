"""Statement: what a device has spent, as data for an application that shows it."""

import sqlite3
from dataclasses import dataclass
from fractions import Fraction

from hush_client.policy import Policy
from hush_client.state import ledger, outbox
from hush_client.state.ledger import Charge
from hush_common.epsilon import at_most_sure, float_at_most
from hush_common.formatting import percent_at_most


@dataclass(frozen=True, slots=True)
class Budget:
    """What one device has spent on one purpose."""

    purpose: str  #: as the tasks state it; "" where they state none
    spent: Fraction  #: the sum of the charges, exact
    cap: Fraction  #: the most that may ever be spent on it
    charges: tuple[Charge, ...]  #: one for each answer, oldest first


@dataclass(frozen=True, slots=True)
class Statement:
    """What one device has spent. Nothing in it tells a value or an answer."""

    device: str  #: its name
    cap: Fraction | None  #: the most that may ever be spent on all purposes together; None if there is no such limit
    budgets: tuple[Budget, ...]  #: one for each purpose, by name
    #: Number of its reports that are kept after the broker's acknowledgement, in case the broker loses them.
    kept: int = 0
    dropped: int = 0  #: number of reports that were deleted early because there was no room

    @property
    def spent(self) -> Fraction:
        """The total over all purposes."""
        return sum((budget.spent for budget in self.budgets), Fraction(0))

    @property
    def certainty(self) -> float:
        """The highest certainty that an observer, 50/50 before, can reach with all reports: 0.5 to 1, rounded up."""
        return float_at_most(at_most_sure(self.spent))

    @property
    def certainty_text(self) -> str:
        """The same for a person: "73.2 %". Rounded up, and never to 100 %."""
        return percent_at_most(at_most_sure(self.spent))


def read_statement(connection: sqlite3.Connection, device: str, policy: Policy) -> Statement:
    """Read the statement of a device, inside an open transaction."""
    budgets = []
    for account in ledger.accounts(connection, device):
        charges = tuple(ledger.charges(connection, device, account.purpose))
        budgets.append(Budget(account.purpose, account.spent, policy.lifetime, charges))
    kept, dropped = outbox.count_retained(connection, device), outbox.count_dropped(connection, device)
    return Statement(device, policy.total, tuple(budgets), kept, dropped)
