"""Standing: what is known of a task on a connection, and when what was overwritten is published again."""

from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256

from hush_aggregator.claims import Claim
from hush_aggregator.store.base import Origin, State, TaskRow

__all__ = ["Standing", "shown"]

_SHORTEST_S, _LONGEST_S = 1.0, 60.0
_QUIET_S = 600.0
_SENT = 16  # of what this store published lately may still be on its way back


@dataclass(slots=True)
class Standing:
    """What is known of a task.

    Attributes:
        task: digest of what is retained on the topic of the task; None for nothing.
        estimate: what is retained on that of the estimate; None for nothing.
        mine: what this store claims, if it is the owner; None if it is not, or that is not known yet.
        forged: whether the estimate there is not one that this store published on this connection.
        last: the estimate that it published last.
        told: what was said about it last.
        again_at: when it may be published again, in seconds of the event loop.
    """

    task: bytes | None = None
    estimate: Claim | None = None
    mine: Claim | None = None
    forged: bool = False
    last: bytes = b""
    told: str = ""
    again_at: float = 0.0
    _again_after: float = 0.0
    _sent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_SENT))

    def sending(self, estimate: bytes) -> None:
        """This store publishes an estimate."""
        self.last = estimate
        self.forged = False
        self._sent.append(_fingerprint(estimate))

    def has_sent(self, estimate: bytes) -> bool:
        """Whether this store published these very bytes lately."""
        return _fingerprint(estimate) in self._sent

    def task_wrong(self, row: TaskRow) -> bool:
        """Whether what is retained on the topic of the task is not what its owner wants there."""
        if row.origin is Origin.BROKER:
            return False  # the publisher is responsible for it
        return self.task != row.digest if row.state is State.OPEN else self.task == row.digest

    def overwritten(self, now: float) -> bool:
        """Wait longer before the next time, up to a minute; return whether it is time to tell a person."""
        quiet = not self.again_at or now > self.again_at + _QUIET_S
        tell = quiet or self._again_after < _LONGEST_S <= 2 * self._again_after
        self._again_after = _SHORTEST_S if quiet else min(2 * self._again_after, _LONGEST_S)
        self.again_at = now + self._again_after
        return tell


def _fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()[:16]


def shown(topic: str) -> str:
    """What to call a topic: whoever looks whether messages come back makes up a name each time."""
    return "hush/v1/estimates/+" if "/probe-" in topic else topic
