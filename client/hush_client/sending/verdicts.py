"""What the broker says to publications, and when what it did not take is sent again.

An acknowledgement under MQTT 5 may say that the broker does not have the report: its rules forbid it, or nobody has
ever subscribed to such. Then the report stays, and is tried again after ten seconds or less, then ever more rarely, at
least every hour; the others go on. Nothing of this is written down: a start tries everything once, so that whoever has
mended the rules need not wait, and a refusal costs the flash memory nothing. One that came too late to be counted is
tried no more until then: it stays, for a clock may be wrong.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.state.outbox import Entry, is_late
from hush_client.undelivered import Undelivered
from hush_common.aio import Backoff
from hush_common.topics import Acknowledgement

__all__ = ["LONGEST_PAUSE", "Verdicts"]

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE = 10.0
LONGEST_PAUSE = 3600.0
"""Seconds."""

_OF_ALL = (Undelivered.FORBIDDEN, Undelivered.NO_SUBSCRIBER, Undelivered.OVER_QUOTA)
"""What is as true of every report to the same topic: one of them asks again, and the others wait for the answer."""

_OF_ONE = frozenset({0x81, 0x82, 0x87, 0x90, 0x95, 0x97, 0x99})
"""With these reasons a broker ends a connection because of the message that it has just read."""

_STRIKES = 5
"""Connections that end over the same message, without a reason, before the others go first."""


@dataclass(slots=True)
class _Hold:
    """A topic whose reports the broker does not take.

    Args:
        answer: what it said last.
        pauses: until it is asked again.
        until: when that is, by the clock of the schedule.
        probe: the entry that asks.
        waiting: the entries that wait for the answer.
        fresh: until then, what is new waits like the others; after that it asks.
    """

    answer: Acknowledgement
    pauses: Backoff
    until: float = 0.0
    probe: int | None = None
    waiting: set[int] = field(default_factory=set)
    fresh: float = 0.0


class Verdicts:
    """Which entries of the outbox the broker did not take, and until when they wait.

    Args:
        schedule: of the outbox.
        clock: the current time, aware.
    """

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule, self._clock = schedule, clock
        self._topics: dict[str, _Hold] = {}
        self._alone: dict[int, tuple[Acknowledgement, Backoff]] = {}
        self._odd: dict[int, Backoff] = {}
        self._in_flight: dict[int, str] = {}  # in the order in which they were sent
        self._suspect: tuple[int | None, int] = None, 0

    def waiting(self) -> Iterator[int]:
        """The entries that wait because of what the broker said to them."""
        yield from self._alone
        for hold in self._topics.values():
            yield from hold.waiting

    def said(self, sequence: int) -> Acknowledgement | None:
        """What the broker said to an entry that waits because of that, or to others like it; None where none does."""
        if (alone := self._alone.get(sequence)) is not None:
            return alone[0]
        return next((hold.answer for hold in self._topics.values() if sequence in hold.waiting), None)

    def stands(self, entry: Entry) -> Acknowledgement | None:
        """What the broker said of it or its topic, if an entry waits on because of that; None to send it now."""
        sequence, topic = entry.sequence, entry.topic
        if is_late(entry, milliseconds(self._clock())) and (answer := self.said(sequence)) is not None:
            self._schedule.done(sequence)
            return answer
        hold, now = self._topics.get(topic), self._schedule.now()
        if hold is not None and now < (hold.until if sequence in hold.waiting else hold.fresh):
            self._wait(hold, sequence)
            return hold.answer
        if hold is not None:
            hold.probe, hold.fresh = sequence, now + _FIRST_PAUSE
            hold.until = max(hold.until, hold.fresh)  # the others wait for what is said to this one
            hold.waiting.discard(sequence)
        self._in_flight[sequence] = topic
        return None

    def heard(self, sequence: int, topic: str, answer: Acknowledgement) -> bool:
        """Take notice of what the broker said to an entry; whether it has the report."""
        self._in_flight.pop(sequence, None)
        self._odd.pop(sequence, None)
        why = Undelivered.of(answer)
        if why is None:
            self._alone.pop(sequence, None)
            self._release(topic)
        elif why in _OF_ALL:
            if topic not in self._topics:
                _LOG.warning("%s: not delivered: %s; what goes there waits, and is tried again", topic, why.meaning)
            self._hold(sequence, topic, answer)
        else:
            if sequence not in self._alone:
                _LOG.warning("%s: a report is not delivered: %s; it is tried again", topic, why.meaning)
            _, pauses = self._alone.get(sequence, (answer, Backoff(_FIRST_PAUSE, LONGEST_PAUSE)))
            self._alone[sequence] = answer, pauses
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
        return why is None

    def lost(self, reason: int | None) -> Iterator[tuple[int, Acknowledgement]]:
        """Take notice of the end of a connection: what was said of which entry by that, if anything.

        A broker reads messages in order, so that it ends the connection because of the first that it has not answered.
        Where it gives no reason, that may be the network; if it happens again and again, this one lets others go first.
        """
        sequence, topic = next(iter(self._in_flight.items()), (None, ""))
        self._in_flight.clear()
        suspect, strikes = self._suspect
        self._suspect = sequence, strikes + 1 if sequence == suspect else 1
        if sequence is None:
            return
        if reason in _OF_ONE:
            answer = Acknowledgement(reason, told=True)
            self.heard(sequence, topic, answer)
            yield sequence, answer
        elif self._suspect[1] >= _STRIKES or sequence in self._odd:
            pauses = self._odd.setdefault(sequence, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
            self._suspect = None, 0

    def _hold(self, sequence: int, topic: str, answer: Acknowledgement) -> None:
        now, hold = self._schedule.now(), self._topics.get(topic)
        if hold is None:
            hold = self._topics[topic] = _Hold(answer, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
        if hold.until <= now or sequence == hold.probe:
            hold.until, hold.probe = now + hold.pauses.next(), None  # who waits hears of it when its turn comes
        self._alone.pop(sequence, None)
        hold.answer, hold.fresh = answer, min(now + _FIRST_PAUSE, hold.until)
        self._wait(hold, sequence)

    def _wait(self, hold: _Hold, sequence: int) -> None:
        hold.waiting.add(sequence)
        self._schedule.postpone(sequence, hold.until)

    def _release(self, topic: str) -> None:
        """Let those go that waited for this topic."""
        hold = self._topics.pop(topic, None)
        for sequence in () if hold is None else sorted(hold.waiting):
            self._schedule.postpone(sequence, self._schedule.now())
