"""The ledger of one device as a decision reads it, on an open transaction."""

import sqlite3
from fractions import Fraction

from hush_client.decide import Answered
from hush_client.state import ledger, pins, sticky
from hush_common.mechanisms.mechanism import Levelled
from hush_common.mechanisms.sticky import Memory

__all__ = ["Book"]


class Book:
    """A `hush_client.decide.Ledger`.

    Args:
        connection: of the state.
        device: whose ledger.
    """

    def __init__(self, connection: sqlite3.Connection, device: str) -> None:
        self._connection = connection
        self._device = device

    def pinned(self, task: str, /) -> bytes | None:
        return pins.pinned(self._connection, self._device, task)

    def paid(self, task: str, /) -> bool:
        return pins.is_charged(self._connection, self._device, task)

    def answered(self, task: str, round_: int, /) -> Answered | None:
        charge = ledger.find(self._connection, self._device, task, round_)
        return None if charge is None else Answered(charge.epsilon, charge.report_id)

    def spent(self, purpose: str, /) -> Fraction:
        return ledger.spent(self._connection, self._device, purpose)

    def spent_in_all(self) -> Fraction:
        return ledger.spent_in_all(self._connection, self._device)

    def memory(self, task: str, mechanism: Levelled, /) -> Memory | None:
        return sticky.find(self._connection, self._device, task, mechanism, answered=self.paid(task))
