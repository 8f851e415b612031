"""Signs that a broker has forgotten something: what it says of itself, beside what the store remembers of it.

A broker that was killed, or put back from a snapshot, has lost messages that it had acknowledged, and nothing in MQTT
says so. But it has started anew. By its uptime u at a time t it started at t - u or somewhat before: its first word on
a connection is retained, and a few seconds old, the second one is of now. It is another start if that lies after the
last word of the broker before: within one process by a clock that nobody sets. Across processes only the clock of the
wall is left, which may have been set; so that start is compared with the one that the store knows, too. A doubt is a
sign.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from hush_aggregator.store.base import BrokerMemory
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME

__all__ = ["BrokerSigns", "Cause"]

_LAG_S = 15  # a word of mosquitto is 11 s old at most
_ROUNDED_S = 2  # times are whole seconds: a start that seems to lie so little before the last word may lie after it
_TOLERANCE_S = 60
_DRIFT = 1e-4  # seconds that two clocks part in each second in which nobody compares them
_NOTE_EVERY_S = 600
_DIGITS = 15


class Cause(StrEnum):
    """Why reports are recalled."""

    SESSION = "the broker no longer has the session that was left there"
    RESTART = "the broker has started anew"
    DROPPED = "the broker has dropped messages"
    UNKNOWN = "the broker does not say whether it has started anew since the last connection"
    BEHIND = "the broker holds an estimate of this store with more reports than the store has"
    RESTORED = "the store was put back from a backup"

    @property
    def doubtful(self) -> bool:
        """Whether it may come again and again without anything being lost."""
        return self in (Cause.DROPPED, Cause.UNKNOWN)


class BrokerSigns:
    """Finds out what happened to the broker between two connections.

    Args:
        memory: what the store knows of it.
        now: seconds since 1970.
        elapsed: seconds by a clock that nobody sets.

    Attributes:
        memory: what is known now; to be stored.
    """

    def __init__(self, memory: BrokerMemory, now: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self.memory: BrokerMemory = memory
        self._noted = memory
        self._now = now
        self._elapsed = elapsed
        self._alive: float | None = None  # when this process last heard the broker, by `elapsed`
        self._judged = True  # whether it is decided what happened before this connection
        self._words = 0  # on this connection, of its uptime
        self._dropped: int | None = None  # what it said last

    @property
    def dropped(self) -> int | None:
        """How many messages it says it has dropped since it started; None if it has not said."""
        return self._dropped

    def connected(self, *, resumed: bool) -> Cause | None:
        """A connection is made, to the session of before or to a new one."""
        missed = self.memory.session and not resumed
        self._judged = missed or not self.memory.session
        self._words = 0
        self.memory = replace(self.memory, session=True)
        if not missed:
            return None
        self._begin_anew()
        return Cause.SESSION

    def heard(self, topic: str, payload: bytes) -> Cause | None:
        """The broker says something of itself; what cannot be read says nothing."""
        number = _number(payload)
        if number is None:
            return None
        if topic == BROKER_UPTIME:
            return self._up_for(number)
        if topic == BROKER_DROPPED:
            return self._has_dropped(number)
        return None

    def silent(self) -> Cause | None:
        """It has had time enough to say how long it is up."""
        if self._judged or self._words:
            return None
        self._judged = True
        return Cause.UNKNOWN

    def overdue(self) -> Cause | None:
        """It has had time enough to say so once more, where its first word left a doubt."""
        if self._judged:
            return None
        self._judged = True
        self._begin_anew()
        return Cause.RESTART

    def repaired(self) -> None:
        """Everything that was dropped until now is recalled."""
        if self._dropped is not None:
            self.memory = replace(self.memory, dropped=self._dropped)

    def noted(self, memory: BrokerMemory) -> None:
        """This is stored."""
        self._noted = memory

    @property
    def news(self) -> bool:
        """Whether enough has changed to be stored: a few times in the life of a broker, then every ten minutes."""
        old, new = self._noted, self.memory
        if replace(old, alive=None, started=None) != replace(new, alive=None, started=None):
            return True
        if new.started is None or new.alive is None:
            return False
        if old.started is None or old.alive is None or abs(new.started - old.started) > 1:
            return True
        young = old.alive - old.started <= 2 * _LAG_S and new.alive > old.alive
        return young or abs(new.alive - old.alive) >= _NOTE_EVERY_S

    def _up_for(self, uptime: int) -> Cause | None:
        now, elapsed = int(self._now()), self._elapsed()
        started = now - uptime
        self._words += 1
        another = False if self._judged else self._is_another(started, now, elapsed - uptime)
        if another is None:
            return None
        self._judged = True
        if another:
            self._begin_anew()
        known = self.memory.started
        if known is not None and abs(started - known) <= _LAG_S:
            started = min(started, known)  # of two words the less belated one
        self.memory = replace(self.memory, started=started, alive=now)
        self._alive = elapsed
        return Cause.RESTART if another else None

    def _is_another(self, started: int, now: int, started_elapsed: float) -> bool | None:
        """Whether it is not the start that is known; None if the next word has to tell."""
        after = 0.0
        if self._alive is not None:
            after = started_elapsed - self._alive
        else:
            known, alive = self.memory.started, self.memory.alive
            if known is None or alive is None or abs(started - known) > _TOLERANCE_S + _DRIFT * abs(now - alive):
                return True
            after = started - alive
        if -_ROUNDED_S < after <= _LAG_S and self._words == 1:
            return None
        return after > -_ROUNDED_S  # in doubt it is: a recall that was not needed costs little, one that is missing all

    def _has_dropped(self, count: int) -> Cause | None:
        self._dropped = count
        known = self.memory.dropped
        if known is None or count < known:
            self.memory = replace(self.memory, dropped=count)
        return None if known is None or count <= known else Cause.DROPPED

    def _begin_anew(self) -> None:
        """Of another broker, or another life of this one, nothing is known yet."""
        self.memory = BrokerMemory(session=True)
        self._dropped = None


def _number(payload: bytes) -> int | None:
    """The natural number in front, `123` or `123 seconds`."""
    digits = payload[:64].partition(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS else None
