"""Detect broker restarts and dropped messages from its `$SYS` topics.

A broker that was killed, or put back from a snapshot, has lost messages that it had acknowledged, and nothing in MQTT
tells so. But it has started anew, and its uptime shows it. What proves a restart must hold however late a message is:
behind a backlog of reports an uptime may be minutes old when it arrives.

- One process never publishes a smaller uptime after a larger one.
- The second uptime of a connection was published after that connection was opened (the first one is retained, and may
  be older). So a process with uptime u then started at `since - u` or later, where `since` is the newest moment for
  which everything is known to have come that was sent before it. That is a restart if the process of the last
  connection had started before.
- A process that started at `now - u` or earlier, before the last moment at which the broker of the last connection was
  known to be alive, is that process: no restart.

Within one process of hush these moments are of a clock that nobody sets. Across processes only the clock of the wall is
left, which may have been set: there a minute of tolerance is added. What neither proves nor excludes a restart (the
broker was seconds old when it was last heard of) waits for an uptime that is not late, and is then taken for one.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from hush_aggregator.store.base import BrokerMemory
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME

_LATE_S = 15  # an uptime that may be this old tells nothing about a broker that was as young
_ROUNDED_S = 2  # times are whole seconds
_TOLERANCE_S = 60
_DRIFT = 1e-4  # seconds that two clocks part in each second in which nobody compares them
_NOTE_EVERY_S = 600
_DIGITS = 15


class RecallReason(StrEnum):
    """Why reports are recalled."""

    SESSION = "the broker no longer has the session that was left there"
    RESTART = "the broker has started anew"
    DROPPED = "the broker has dropped messages"
    UNKNOWN = "the broker does not tell whether it has started anew since the last connection"
    BEHIND = "the broker holds an estimate of this store with more reports than the store has"
    RESTORED = "the store was put back from a backup"

    @property
    def doubtful(self) -> bool:
        """Whether it may come again and again without anything being lost."""
        return self in (RecallReason.DROPPED, RecallReason.UNKNOWN)


class BrokerRestartDetector:
    """Detects what happened to the broker between two connections.

    Attributes:
        memory: what is known now; to be stored.
        evidence: what the last cause follows from, for the log.
        is_unexplained: whether it is still to be found out if the broker has started anew before this connection.
    """

    def __init__(self, memory: BrokerMemory, now: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self.memory: BrokerMemory = memory
        self.evidence: str = ""
        self._noted = memory
        self._now = now
        self._elapsed = elapsed
        self._alive: float | None = None  # by `elapsed`: the broker that is known was alive then
        self._started = 0.0  # by `elapsed`: it had started by then; of no meaning without `_alive`
        self._uptime = 0  # the last one of it
        self.is_unexplained: bool = False
        self._is_judged = True  # whether that is decided for the connection on which it is heard
        self._words = 0  # uptimes on that connection
        self._first = 0  # of these
        self._dropped: int | None = None  # what it said last

    @property
    def dropped(self) -> int | None:
        """How many messages it has dropped since it started; None if it has not told."""
        return self._dropped

    def connected(self, *, resumed: bool) -> RecallReason | None:
        """Note that reports come over a new connection, to the session of before or to a new one."""
        missed = self.memory.session and not resumed
        self.is_unexplained = self.memory.session and resumed
        self.memory = replace(self.memory, session=True)
        if not missed:
            return None
        self._begin_anew()
        self.evidence = "there was a session, and the broker has made a new one"
        return RecallReason.SESSION

    def listening(self) -> None:
        """Note that what follows is heard on another connection than what came before."""
        self._words = 0
        self._is_judged = False

    def heard(self, topic: str, payload: bytes, since: float) -> RecallReason | None:
        """Read what the broker says of itself; what cannot be read says nothing.

        Args:
            topic: of `$SYS`.
            payload: unchecked bytes.
            since: by `elapsed`: everything has come that was sent before this moment.
        """
        number = natural_number(payload)
        if number is None:
            return None
        if topic == BROKER_UPTIME:
            return self._up_for(number, since)
        if topic == BROKER_DROPPED:
            return self._has_dropped(number)
        return None

    def alive(self, since: float) -> None:
        """Note that the broker that was heard was alive at this moment (by `elapsed`): it has answered since then."""
        if self._alive is not None and self._is_judged and since > self._alive:
            self._alive = since
            stored = int(self._now() - self._elapsed() + since)
            self.memory = replace(self.memory, alive=max(stored, self.memory.started or 0))

    @property
    def is_young(self) -> bool:
        """Whether the broker that is known has not been up for long: then each second counts that it is alive."""
        memory = self.memory
        return memory.alive is not None and memory.alive - (memory.started or 0) <= 2 * _LATE_S

    def silent(self) -> RecallReason | None:
        """Note that it had time to publish an uptime, and everything has come that it sent in that time."""
        if self._words or not self.is_unexplained:
            return None
        self.is_unexplained = False
        self.evidence = f"nothing comes on {BROKER_UPTIME}"
        return RecallReason.UNKNOWN

    def repaired(self) -> None:
        """Note that everything is recalled that was dropped until now."""
        if self._dropped is not None:
            self.memory = replace(self.memory, dropped=self._dropped)

    def noted(self, memory: BrokerMemory) -> None:
        """Note that this is stored."""
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
        age = old.alive - old.started
        has_doubled = age <= 2 * _LATE_S and new.alive - new.started >= 2 * max(age, 1)
        return has_doubled or abs(new.alive - old.alive) >= _NOTE_EVERY_S

    def _up_for(self, uptime: int, since: float) -> RecallReason | None:
        elapsed = self._elapsed()
        self._words += 1
        if self._words == 1:
            self._first = uptime
        nothing_known = self._alive is None and self.memory.started is None
        is_other = False if self._is_judged or nothing_known else self._is_other(uptime, since, elapsed)
        if is_other is None:
            return None
        self._is_judged = True
        self.is_unexplained = False
        if is_other:
            self._begin_anew()
        started = elapsed - uptime
        self._started = min(started, self._started) if self._alive is not None else started
        self._alive = since
        self._uptime = uptime
        offset = self._now() - elapsed
        stored = int(offset + self._started)
        self.memory = replace(self.memory, started=stored, alive=max(int(offset + since), stored))
        return RecallReason.RESTART if is_other else None

    def _is_other(self, uptime: int, since: float, elapsed: float) -> bool | None:
        """Return whether it is another process than the one that is known; None if a later uptime has to tell."""
        alive, known, before, tolerance = self._known()
        offset = 0.0 if self._alive is not None else self._now() - elapsed
        latest = offset + elapsed - uptime
        is_new = self._words > 1 and uptime > self._first  # else it may be retained, and older than this connection
        earliest = offset + since - uptime if is_new else None
        ago = offset + elapsed - alive
        self.evidence = f"it is up for {uptime} s, and was up for {before} s already {ago:.0f} s ago"
        if uptime < (self._uptime - _ROUNDED_S if self._alive is not None else before - tolerance):
            return True
        if earliest is not None and (uptime < before - _ROUNDED_S or earliest > known + tolerance):
            return True
        if latest < alive and (self._alive is not None or latest >= known - tolerance):
            return False
        if earliest is None or elapsed - since > _LATE_S:
            return None
        return True

    def _known(self) -> tuple[float, float, int, float]:
        """When the broker was alive, by when it had started, its uptime then, and how well these can be compared."""
        if self._alive is not None:
            return self._alive, self._started, int(self._alive - self._started), _ROUNDED_S
        alive, started = self.memory.alive or 0, self.memory.started or 0
        return alive, started, alive - started, _TOLERANCE_S + _DRIFT * abs(self._now() - alive)

    def _has_dropped(self, count: int) -> RecallReason | None:
        self._dropped = count
        known = self.memory.dropped
        if known is None or count < known:
            self.memory = replace(self.memory, dropped=count)
        if known is None or count <= known:
            return None
        self.evidence = f"{count} dropped, {count - known} more than before"
        return RecallReason.DROPPED

    def _begin_anew(self) -> None:
        """Of another broker, or another life of this one, nothing is known yet."""
        self.memory = BrokerMemory(session=True)
        self._alive = None
        self._dropped = None


def natural_number(payload: bytes) -> int | None:
    """Return the natural number in front, as in `123` or `123 seconds`; None if there is none."""
    digits = payload[:64].partition(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS else None
