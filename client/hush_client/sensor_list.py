"""Which sensors take part: a text file that a person edits, and what the gateway has heard of each topic.

A topic becomes a candidate by its first live message that has the key of the value, also with null. It answers once a
person has confirmed it. All of this is public and decided before any value: no value is in scope here.
"""

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path

from hush_client.sensor_messages import SensorField
from hush_common.errors import ExplainedEnum, StateError
from hush_common.files import replace_file
from hush_common.topics import matches

LIST_NAME = "sensors.txt"  # in the state directory
_LONGEST_TOPIC = 256
_MOST_HEARD = 10_000
"""Most topics that are followed without being in the list."""
_SAVE_EVERY = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_HEADER = """\
# The sensors that hush gateway knows, one a line: your decision, the hour of the newest live message, the topic.
#   yes  it takes part
#   no   it does not, and is not asked for again
#   ?    it waits for your decision: write yes or no
# Below [KEY] are the sensors whose messages have this key. hush reads this file again whenever it has changed.
"""
_LINE = re.compile(r"(?i:(yes|no|\?))\s+(?:([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)\s+)?(\S.*)")


class Confirmation(StrEnum):
    """What a person has decided about a sensor."""

    YES = "yes"
    NO = "no"
    OPEN = "?"


class Participation(ExplainedEnum):
    """Whether a topic takes part, and why not."""

    TAKES_PART = "takes part", ""
    WAITS = "candidate", f"a candidate with the key; it waits for your yes (--take-part, or {LIST_NAME})"
    REMOVED = "removed", f"{LIST_NAME} says no, or its line was deleted"
    EXCLUDED = "excluded", "--exclude matches it"
    UNMATCHED = "not read", "--topic does not match it"
    UNHEARD = "not heard yet", f"{LIST_NAME} says yes; it has sent no live message with the key yet"
    STOPPED = "stopped", "it has sent no live message within --forget-after; its next one starts it again"
    RETAINED = "not live", "only retained messages so far, whose age is unknown; it waits for a live one with the key"
    NO_KEY = "no key", "none of its messages has the key"
    FULL = "list full", "--most-sensors are listed already; confirm it with --take-part TOPIC, or raise the number"
    UNLISTABLE = "bad topic", f"its topic is longer than {_LONGEST_TOPIC} characters, or has one that cannot be printed"

    def explain(self, field: str) -> str:
        """Why a topic takes no part, for a person; `field` is the key of the value."""
        return self.meaning.replace("the key", f"the key {field}") if field else self.meaning


SensorKey = tuple[str, str]  # field and topic


@dataclass(frozen=True, slots=True)
class Sensor:
    """A line of the list."""

    decision: Confirmation
    heard: datetime | None = None  # the newest live message, once one had the key


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What decides, besides the list, whether a sensor takes part."""

    confirmed: Sequence[str] = ()  # topic filters that a person has named
    excluded: Sequence[str] = ()  # topic filters
    read: Sequence[str] = ("#",)  # topic filters of the messages that are read
    keys: Collection[str]  # of the values that are read; the list may have others
    most: int  # sensors that are listed by themselves
    forget_after: timedelta
    had_answered: Collection[str] = ()  # topics in the ledger: one that the list lacks was deleted from it


class SensorList:
    """The sensors in a list, and the other topics that were heard.

    Args:
        path: the file; None keeps nothing.
        admission: what else decides.
        clock: the current time, aware.

    Raises:
        StateError: the file cannot be read.
    """

    def __init__(self, path: Path | None, admission: Admission, clock: Callable[[], datetime]) -> None:
        self.path = path
        self._admission = admission
        self._clock = clock
        self.sensors: dict[SensorKey, Sensor] = {}
        self._comments: dict[SensorKey, list[str]] = {}  # of a person, each before a sensor
        self._others: dict[SensorKey, Participation] = {}
        self._ruled_out = lru_cache(2 * _MOST_HEARD)(partial(_rule_out, admission))
        self.is_changed: bool = True
        """Whether a decision, or who takes part, may have changed since this was last set to False."""
        self._content = self._seen = b""
        self._stored: dict[SensorKey, Sensor] = {}
        self._can_detect_deletion = path is not None and path.exists()
        self._accept(self._found())

    def read(self) -> None:
        """Read what a person has changed in the file; StateError if it cannot be read.

        A decision in the file counts. Deleting the line of a confirmed sensor is a no; deleting that of a candidate
        is no decision, because it may have been added while a person was editing. A change counts from the second call
        on that finds it: an editor may be writing.
        """
        content = self._found()
        if content != self._content and content == self._seen:
            self._accept(content)
        self._seen = content

    def save(self) -> bool:
        """Write the file if a decision has changed, or a time by much; return False if a change in it is unread.

        Raises:
            StateError: the file cannot be read or written.
        """
        if self.path is None or not any(map(self._is_new, self.sensors)):
            return True
        if self._found() != self._content:
            return False
        content = self._text().encode()
        try:
            replace_file(Path(os.path.realpath(self.path)), content)  # a link stays one
        except OSError as error:
            raise StateError(f"{self.path}: cannot be written ({error.strerror}); make room") from error
        self._content = self._seen = content
        self._stored = dict(self.sensors)
        return True

    def _found(self) -> bytes:
        """Return what is in the file; what was in it before if it is gone."""
        try:
            return self.path.read_bytes() if self.path is not None and self.path.exists() else self._content
        except OSError as error:
            raise StateError(f"{self.path}: cannot be read ({error.strerror})") from error

    def _accept(self, content: bytes) -> None:
        try:
            found, comments = _parse(content.decode())
        except ValueError as error:
            why = "is not UTF-8 text; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise StateError(f"{self.path}: {why}") from error
        for key, sensor in found.items():
            known = self.sensors.get(key)
            heard = max((one.heard for one in (known, sensor) if one and one.heard), default=None)
            self.sensors[key] = Sensor(self._decision(key, sensor.decision), heard)
        for key in self._stored.keys() - found.keys():
            if self.sensors[key].decision is Confirmation.OPEN:
                del self.sensors[key]
            else:
                self.sensors[key] = replace(self.sensors[key], decision=Confirmation.NO)
        self._content = self._seen = content
        self._stored, self._comments, self.is_changed = found, comments, True

    def hear(self, field: str, topic: str, *, live: datetime | None, has_key: bool) -> None:
        """Note a message of a topic.

        Args:
            field: the key of the value.
            topic: the topic.
            live: when it was sent; None if the broker had stored it.
            has_key: whether the messages of the topic have the key, also with null.
        """
        key = field, topic
        if key not in self.sensors:
            self._hear_other(key, live, has_key=has_key)
            return
        before, sensor = self.participation(field, topic), self.sensors[key]
        if live is not None and (has_key or sensor.heard is not None):
            was_right = sensor.heard is not None and sensor.heard <= self._clock()  # else the clock was set back
            self.sensors[key] = replace(sensor, heard=max(live, sensor.heard or live) if was_right else live)
        self.is_changed |= self.participation(field, topic) is not before

    def participation(self, field: str, topic: str) -> Participation:
        """Return whether a topic takes part, and why not."""
        sensor = self.sensors.get((field, topic))
        if (ruled_out := self._ruled_out(topic)) is not None:
            return ruled_out
        if sensor is None:
            return self._others.get((field, topic), Participation.NO_KEY)
        if sensor.decision is not Confirmation.YES:
            return Participation.WAITS if sensor.decision is Confirmation.OPEN else Participation.REMOVED
        if sensor.heard is None:
            return Participation.UNHEARD
        is_alive = abs(self._clock() - sensor.heard) <= self._admission.forget_after
        return Participation.TAKES_PART if is_alive else Participation.STOPPED

    def all(self) -> dict[SensorKey, Participation]:
        """Return whether each known topic takes part: those of the list first."""
        keys = [*self.sensors, *(key for key in self._others if key not in self.sensors)]
        return {key: self.participation(*key) for key in keys}

    @property
    def is_crowded(self) -> bool:
        """Whether more topics were heard than are followed."""
        return len(self._others) >= _MOST_HEARD

    def _hear_other(self, key: SensorKey, live: datetime | None, *, has_key: bool) -> None:
        _, topic = key
        before = self._others.get(key, Participation.NO_KEY)
        if not is_plain(topic) or _is_filter(topic):
            found = Participation.UNLISTABLE
        elif not has_key:
            found = before
        elif live is None:
            found = Participation.RETAINED if before is Participation.NO_KEY else before
        elif (ruled_out := self._ruled_out(topic)) is not None:
            found = ruled_out
        elif topic in self._admission.confirmed or self._has_room():
            self.sensors[key] = Sensor(self._first_decision(topic), live)
            self._others.pop(key, None)
            self.is_changed = True
            return
        else:
            found = Participation.FULL
        if key in self._others or not self.is_crowded:
            self._others[key] = found

    def _first_decision(self, topic: str) -> Confirmation:
        if self._was_deleted(topic) and topic not in self._admission.confirmed:
            return Confirmation.NO
        return Confirmation.YES if _any_matches(self._admission.confirmed, topic) else Confirmation.OPEN

    def _was_deleted(self, topic: str) -> bool:
        had_answered = self._can_detect_deletion and topic in self._admission.had_answered
        return had_answered and all(topic != listed for _, listed in self.sensors)  # listed with another key, it is new

    def _decision(self, key: SensorKey, listed: Confirmation) -> Confirmation:
        """Return the decision about a listed sensor: the options confirm a candidate with a key of this run."""
        field, topic = key
        is_candidate = listed is Confirmation.OPEN and field in self._admission.keys
        return Confirmation.YES if is_candidate and _any_matches(self._admission.confirmed, topic) else listed

    def _has_room(self) -> bool:
        if len(self.sensors) < self._admission.most:
            return True
        return sum(one.decision is not Confirmation.NO for one in self.sensors.values()) < self._admission.most

    def _is_new(self, key: SensorKey) -> bool:
        sensor, stored = self.sensors[key], self._stored.get(key)
        if stored is None or stored.decision is not sensor.decision:
            return True
        return self._written(sensor.heard) != self._written(stored.heard)

    def _written(self, heard: datetime | None) -> str:
        """Return a time as the file has it: of the hour alone, because a message may come with an event."""
        every = min(_SAVE_EVERY, self._admission.forget_after / 10)
        return "" if heard is None else f"{heard - (heard - _EPOCH) % every:{_TIME}} "

    def _text(self) -> str:
        lines = [_HEADER.rstrip()]
        for field in dict.fromkeys(field for field, _ in self.sensors):
            lines += ["", f"[{field}]"]
            for (of, topic), sensor in self.sensors.items():
                if of == field:
                    line = f"{sensor.decision:<3} {self._written(sensor.heard)}{topic}"
                    lines += [*self._comments.get((of, topic), ()), line]
        return "\n".join([*lines, *self._comments.get(("", ""), ()), ""])


def _parse(text: str) -> tuple[dict[SensorKey, Sensor], dict[SensorKey, list[str]]]:
    """Return the sensors of a list, and the comments before each; ValueError names the line that is wrong."""
    sensors: dict[SensorKey, Sensor] = {}
    comments: dict[SensorKey, list[str]] = {}
    field, above, ours = None, list[str](), set(_HEADER.splitlines())
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        words = line.strip()
        if words.startswith("["):
            field = SensorField(words[1:].removesuffix("]")).key
        elif words.startswith("#") or not words:
            above += [words] if words and words not in ours else []
        elif field is None:
            raise ValueError(f"line {number} is before the first [KEY]; write the key of its value above it, as [KEY]")
        elif (found := _LINE.fullmatch(words)) is None:
            raise ValueError(f"line {number} is not a decision and a topic; write yes, no or ? and the topic")
        else:
            decision, heard, topic = found.groups()
            key = field, topic
            if _is_filter(topic):
                raise ValueError(f"line {number} has + or #; name one topic, and write comments on lines of their own")
            if key in sensors:
                raise ValueError(f"line {number} has a topic that was above already; remove one of the two")
            sensors[key] = Sensor(Confirmation(decision.lower()), None if heard is None else _moment(heard, number))
            comments[key], above = above, []
    comments["", ""] = above
    return sensors, {key: lines for key, lines in comments.items() if lines}


def _moment(text: str, number: int) -> datetime:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"line {number} has a time that does not exist; remove it") from None


def _rule_out(admission: Admission, topic: str) -> Participation | None:
    """Return why the options let no sensor with this topic take part; None if they do."""
    if not _any_matches(admission.read, topic):
        return Participation.UNMATCHED
    return Participation.EXCLUDED if _any_matches(admission.excluded, topic) else None


def _any_matches(filters: Sequence[str], topic: str) -> bool:
    return any(matches(one, topic) for one in filters)


def _is_filter(topic: str) -> bool:
    return "+" in topic or "#" in topic


def is_plain(topic: str) -> bool:
    return 0 < len(topic) <= _LONGEST_TOPIC and topic.isprintable() and topic == topic.strip()
