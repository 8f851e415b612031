"""Retry: what the broker did not take, and when it is sent again.

An acknowledgement under MQTT 5 may say that the broker does not have the report: its rules forbid it, or nobody has
ever subscribed to such topics. The report stays and is tried again after ten seconds or less, then ever more rarely,
at least every hour; the others go on. None of this is written to the disk: a start tries everything once, so that a
corrected rule works at once, and a refusal costs no flash memory. A report that is too late to be counted is not
tried again until then: it stays, because a clock may be wrong.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from hush_client.receipt import Undelivered
from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.state.outbox import Entry, is_late
from hush_common.aio import Backoff
from hush_common.topics import Acknowledgement

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE = 10.0
LONGEST_PAUSE = 3600.0
"""Seconds."""

_OF_ALL = (Undelivered.FORBIDDEN, Undelivered.NO_SUBSCRIBER, Undelivered.OVER_QUOTA)
"""Reasons that concern every report to a topic: one of them is tried again, and the others wait for the answer."""

_OF_ONE = frozenset({0x81, 0x82, 0x87, 0x90, 0x95, 0x97, 0x99})
"""Reasons with which a broker ends a connection because of the message that it has just read."""

_STRIKES = 5
"""Connections that end at the same message, without a reason, before the others go first."""


@dataclass(slots=True)
class _Hold:
    """A topic whose reports the broker does not take.

    Args:
        ack: what it said last.
        pauses: until the next try.
        until: when that is, by the clock of the schedule.
        probe: the entry that is tried.
        waiting: the entries that wait for the answer.
        fresh: until then new entries wait like the others; after that one is tried.
    """

    ack: Acknowledgement
    pauses: Backoff
    until: float = 0.0
    probe: int | None = None
    waiting: set[int] = field(default_factory=set)
    fresh: float = 0.0


class DeliveryFailures:
    """Which entries of the outbox the broker did not take, and until when they wait."""

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule, self._clock = schedule, clock
        self._topics: dict[str, _Hold] = {}
        self._single: dict[int, tuple[Acknowledgement, Backoff]] = {}
        self._suspected: dict[int, Backoff] = {}
        self._in_flight: dict[int, str] = {}  # in the order in which they were sent
        self._suspect: tuple[int | None, int] = None, 0

    def waiting(self) -> Iterator[int]:
        """Return the entries that wait because the broker did not take them, or others like them."""
        yield from self._single
        for hold in self._topics.values():
            yield from hold.waiting

    def ack_of(self, sequence: int) -> Acknowledgement | None:
        """Return why an entry waits; None if it does not."""
        if (single := self._single.get(sequence)) is not None:
            return single[0]
        return next((hold.ack for hold in self._topics.values() if sequence in hold.waiting), None)

    def held_back(self, entry: Entry) -> Acknowledgement | None:
        """Return why an entry that is due must wait on; None to send it now."""
        sequence, topic = entry.sequence, entry.topic
        if is_late(entry, milliseconds(self._clock())) and (ack := self.ack_of(sequence)) is not None:
            self._schedule.done(sequence)
            return ack
        hold, now = self._topics.get(topic), self._schedule.now()
        if hold is not None and now < (hold.until if sequence in hold.waiting else hold.fresh):
            self._wait(hold, sequence)
            return hold.ack
        if hold is not None:
            hold.probe, hold.fresh = sequence, now + _FIRST_PAUSE
            hold.until = max(hold.until, hold.fresh)  # the others wait for the answer to this one
            hold.waiting.discard(sequence)
        self._in_flight[sequence] = topic
        return None

    def record(self, sequence: int, topic: str, ack: Acknowledgement) -> bool:
        """Record what the broker said to an entry; return whether it has the report."""
        self._in_flight.pop(sequence, None)
        self._suspected.pop(sequence, None)
        why = Undelivered.of(ack)
        if why is None:
            self._single.pop(sequence, None)
            self._release(topic)
        elif why in _OF_ALL:
            if topic not in self._topics:
                _LOG.warning("%s: not delivered: %s; what goes there waits, and is tried again", topic, why.meaning)
            self._hold(sequence, topic, ack)
        else:
            if sequence not in self._single:
                _LOG.warning("%s: a report is not delivered: %s; it is tried again", topic, why.meaning)
            _, pauses = self._single.get(sequence, (ack, Backoff(_FIRST_PAUSE, LONGEST_PAUSE)))
            self._single[sequence] = ack, pauses
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
        return why is None

    def connection_lost(self, reason: int | None) -> Iterator[tuple[int, Acknowledgement]]:
        """Record the end of a connection; return the entry that was its cause, and what that means for it.

        A broker reads messages in order, so that it ends the connection because of the first that it has not answered.
        Without a reason it may be the network; if it happens again and again, this entry lets others go first.
        """
        sequence, topic = next(iter(self._in_flight.items()), (None, ""))
        self._in_flight.clear()
        suspect, strikes = self._suspect
        self._suspect = sequence, strikes + 1 if sequence == suspect else 1
        if sequence is None:
            return
        if reason in _OF_ONE:
            ack = Acknowledgement(reason, told=True)
            self.record(sequence, topic, ack)
            yield sequence, ack
        elif self._suspect[1] >= _STRIKES or sequence in self._suspected:
            pauses = self._suspected.setdefault(sequence, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
            self._suspect = None, 0

    def _hold(self, sequence: int, topic: str, ack: Acknowledgement) -> None:
        now, hold = self._schedule.now(), self._topics.get(topic)
        if hold is None:
            hold = self._topics[topic] = _Hold(ack, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
        if hold.until <= now or sequence == hold.probe:
            hold.until, hold.probe = now + hold.pauses.next(), None
        self._single.pop(sequence, None)
        hold.ack, hold.fresh = ack, min(now + _FIRST_PAUSE, hold.until)
        self._wait(hold, sequence)

    def _wait(self, hold: _Hold, sequence: int) -> None:
        hold.waiting.add(sequence)
        self._schedule.postpone(sequence, hold.until)

    def _release(self, topic: str) -> None:
        """Send the entries that waited for this topic."""
        hold = self._topics.pop(topic, None)
        for sequence in () if hold is None else sorted(hold.waiting):
            self._schedule.postpone(sequence, self._schedule.now())
