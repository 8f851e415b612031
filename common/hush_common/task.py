"""A task: what is asked of every device, and how it is read from a file or a retained message."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Literal, cast, get_args

from hush_common.domain import Domain, Index, read_domain
from hush_common.epsilon import LARGEST, SMALLEST, decimal_text, parse_epsilon
from hush_common.errors import EpsilonError, TaskError
from hush_common.mechanisms.mechanism import LevelMechanism, Mechanism
from hush_common.mechanisms.parameters import Parameters, shipped
from hush_common.mechanisms.registry import Offers, assemble, choose, complete, fitting, known, named
from hush_common.rng import Rng
from hush_common.untrusted import DRAFT, TASK, Fields, is_printable, read_file, read_json, read_toml
from hush_common.wire import report_digest_of

Repeat = Literal["fresh", "sticky"]
"""How a device answers round after round: with new noise each time, or from a memory drawn once."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of a device and of an aggregator may disagree before a report counts as early or late."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TEXT_LIMIT = 500
ROUND_LIMIT = 1_000_000
"""Most rounds of one task."""
_SECOND = timedelta(seconds=1)
LONGEST_POLICY = timedelta(days=3650)
"""The longest `release_every` and `retention`."""
MOST_OFFERS = 8
"""Most epsilons that one task may offer."""

_TYPES: dict[str, tuple[type | UnionType, str]] = {
    "id": (str, "text"),
    "mechanism": (str, "the name of a mechanism"),
    "domain": (Domain, "a domain of hush_common.domain"),
    "parameters": (Parameters, "Parameters(…)"),
    "offers": (tuple, "a tuple of fractions"),
    "title": (str, "text"),
    "purpose": (str, "text"),
    "rounds": (int, "an integer"),
    "repeat": (str, "'fresh' or 'sticky'"),
    "round_every": (timedelta | None, "a timedelta, or None"),
    "opens": (datetime | None, "an aware datetime, or None"),
    "closes": (datetime | None, "an aware datetime, or None"),
    "enrolled": (int | None, "an integer, or None"),
    "release_from": (int | None, "an integer, or None"),
    "release_every": (timedelta | None, "a timedelta, or None"),
    "retention": (timedelta | None, "a timedelta, or None"),
    "payload": (bytes, "bytes"),
    "chosen": (frozenset, "a frozenset of names"),
}


def is_task_id(text: str) -> bool:
    """Whether `text` may name a task: a-z, 0-9 and -, at most 64, not starting with -."""
    return _ID.fullmatch(text) is not None


def digest_of(payload: bytes) -> bytes:
    """Return the 32 bytes that identify a task: SHA-256 over the published bytes, the same in any language."""
    return hashlib.sha256(payload).digest()


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of every device.

    Raises:
        TaskError: naming the field and the remedy.
    """

    id: str  #: a-z, 0-9 and -, at most 64 characters
    #: The loss of a device that answers *every* round. With `repeat = "sticky"` it does not cover the pattern of rounds
    #: in which its value changed: see `hush_common.mechanisms.sticky`.
    epsilon: Fraction
    mechanism: str  #: how a value becomes a report; `hush_common.mechanisms.registry` says which fit a domain
    domain: Domain  #: which values are legal
    parameters: Parameters = field(default_factory=Parameters)  #: what the mechanism also needs, complete
    #: The totals among which a device may choose, ascending, `epsilon` the last; empty offers `epsilon` alone.
    offers: tuple[Fraction, ...] = ()
    title: str = ""  #: one line for a person
    #: Why it is asked; shown to the person whose device answers. Lifetime budgets are kept per purpose.
    purpose: str = ""
    rounds: int = 1  #: how often it is asked; a device answers each round at most once
    #: `"fresh"`: a new draw each round, which costs `epsilon / rounds`. `"sticky"`: answers from a memory that is drawn
    #: once, for numbers by `multilevel` and for bits.
    repeat: Repeat = "fresh"
    #: Time from one round to the next; needed with more than one round, as is `opens`.
    round_every: timedelta | None = None
    opens: datetime | None = None  #: when the first round opens (aware datetime); None is always open
    closes: datetime | None = None  #: when the task stops counting reports; None is never
    enrolled: int | None = None  #: how many devices were asked, where that is known; it bounds what silence may hide
    #: With how many reports of a round its estimate is first released; None is at once.
    release_from: int | None = None
    #: Estimates are released at multiples of this since 1970 (UTC) only; None is whenever something was counted.
    release_every: timedelta | None = None
    #: How long ids and bodies of reports are stored once a round is over; None is as long as the operator decides.
    retention: timedelta | None = None
    payload: bytes = field(default=b"", repr=False)  #: the published bytes, exactly; without them no device can answer
    #: Which of `mechanism` and the names of `parameters` the draft left to hush (`hush_common.task.match_published`).
    #: Not published, and no part of what makes tasks equal.
    chosen: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_types()
        if not is_task_id(self.id):
            raise TaskError(
                "id", f"{self.id[:80]!r} is not a task id; use a-z, 0-9 and -, at most 64, not starting with -"
            )
        for name in ("title", "purpose"):
            text = getattr(self, name)
            if len(text) > _TEXT_LIMIT or not is_printable(text):
                raise TaskError(
                    name,
                    f"{text[:40]!r} is not a single line of at most {_TEXT_LIMIT} printable characters; shorten it",
                )
        self._check_repeat()
        self._check_epsilon()
        self._check_offers()
        self._check_times()
        self._check_policy()
        _ = self.randomizer  # a mechanism that does not fit fails here, not on a device

    def _check_types(self) -> None:
        """Check the annotated types: a float for an epsilon would make every probability inexact."""
        for name, (kinds, wanted) in _TYPES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TaskError(name, f"{str(value)[:40]!r} is of type {type(value).__name__}; write {wanted}")
        for name, amounts in (("epsilon", (self.epsilon,)), ("offers", self.offers)):
            for amount in amounts:
                if not isinstance(amount, Fraction):
                    raise EpsilonError(name, f'{str(amount)[:40]!r} is not exact; write Fraction("0.5")')

    def _check_repeat(self) -> None:
        if not 1 <= self.rounds <= ROUND_LIMIT:
            raise TaskError("rounds", f"{str(self.rounds)[:40]} is outside 1 to {ROUND_LIMIT}")
        if self.repeat not in get_args(Repeat):
            raise TaskError("repeat", f"{self.repeat!r} is neither 'fresh' nor 'sticky'; choose one")
        if self.repeat == "fresh":
            return
        if self._memoized_kind is None:
            others = " and ".join(kind.name for kind in known() if issubclass(kind, LevelMechanism))
            raise TaskError("repeat", f"{self.mechanism!r} does not support sticky answers; only {others} do")
        if self.offers:
            raise TaskError("repeat", "a sticky task has one epsilon; drop offers, or ask afresh each round")
        if self.rounds <= self.draws:
            raise TaskError(
                "repeat",
                f"{self.rounds} rounds would share {self.draws} draws: fresh answers cost no more and hide more; "
                f"drop repeat, or ask for more rounds",
            )

    def _check_epsilon(self) -> None:
        if not SMALLEST <= self.epsilon <= LARGEST:
            raise EpsilonError("epsilon", f"{decimal_text(self.epsilon)} is outside [0.000001, 50]")
        if self.epsilon_per_round < SMALLEST:
            raise EpsilonError(
                "epsilon", f"split over {self.draws} draws it falls below 0.000001 per report; ask for fewer rounds"
            )

    def _check_offers(self) -> None:
        if self.enrolled is not None and not 1 <= self.enrolled < 1 << 53:
            raise TaskError(
                "enrolled", f"{self.enrolled} is not a number of devices; write a positive integer, or drop it"
            )
        if not self.offers:
            return
        if not 2 <= len(self.offers) <= MOST_OFFERS:  # noqa: PLR2004 - one is not a choice
            raise TaskError("offers", f"{len(self.offers)} epsilons; offer 2 to {MOST_OFFERS}, or drop offers")
        if list(self.offers) != sorted(set(self.offers)) or self.offers[-1] != self.epsilon:
            texts = ", ".join(map(decimal_text, self.offers))
            raise TaskError("offers", f"{texts} do not ascend to epsilon = {decimal_text(self.epsilon)}; sort them")
        if self.offers[0] / self.rounds < SMALLEST:
            raise EpsilonError("offers", f"{decimal_text(self.offers[0])} is below 0.000001 per round; raise it")

    def _check_times(self) -> None:
        for name in ("opens", "closes"):
            moment = getattr(self, name)
            if moment is not None and moment.utcoffset() is None:
                raise TaskError(name, f"{moment.isoformat()} has no time zone; append Z or an offset")
            if moment is not None:
                _utc(name, moment)
        if self.opens is not None and self.closes is not None and self.closes <= self.opens:
            raise TaskError("closes", f"{self.closes.isoformat()} is not after opens = {self.opens.isoformat()}")
        if self.rounds > 1 and (self.round_every is None or self.opens is None):
            raise TaskError("rounds", f'{self.rounds} rounds need opens and round_every (for example "1d")')
        if self.round_every is not None and (self.round_every < _SECOND or self.round_every % _SECOND):
            raise TaskError("round_every", 'is not a whole number of seconds, at least one; write for example "1d"')
        if self.round_every is not None and self.opens is not None:
            try:
                self.round_opens(self.rounds - 1)
            except OverflowError as error:
                raise TaskError(
                    "round_every", "the last round lies beyond the year 9999; ask for fewer rounds"
                ) from error

    def _check_policy(self) -> None:
        if self.release_from is not None and not 1 <= self.release_from < 1 << 53:
            raise TaskError(
                "release_from", f"{self.release_from} is not a number of reports; write a positive integer, or drop it"
            )
        for name in ("release_every", "retention"):
            length = getattr(self, name)
            if length is not None and (not _SECOND <= length <= LONGEST_POLICY or length % _SECOND):
                raise TaskError(
                    name,
                    f'is not a whole number of seconds, from 1 to {LONGEST_POLICY.days} days; write for example "1d"',
                )

    @cached_property
    def digest(self) -> bytes:
        """The 32 bytes that identify the task everywhere; TaskError without the published bytes."""
        if not self.payload:
            raise TaskError("payload", "is empty: no report can be bound to this task; read it with decode_task")
        return digest_of(self.payload)

    @cached_property
    def report_digest(self) -> bytes:
        """The first 16 bytes of `digest`, which every report carries, so that no answer to another task is counted."""
        return report_digest_of(self.digest)

    @cached_property
    def _memoized_kind(self) -> type[LevelMechanism] | None:
        """The mechanism of a sticky task for which a memory can be drawn."""
        kind = named(self.mechanism) if self.repeat == "sticky" else None
        return kind if kind is not None and issubclass(kind, LevelMechanism) else None

    @property
    def draws(self) -> int:
        """Number of draws that share `epsilon`: one a round, or the G + 1 of a sticky memory."""
        kind = self._memoized_kind
        return self.rounds if kind is None else 1 + kind.levels_of(self.parameters)

    @property
    def epsilon_per_round(self) -> Fraction:
        """Loss of one report under the largest offer."""
        return self.epsilon / self.draws

    @cached_property
    def randomizer(self) -> Mechanism | Offers:
        """The mechanism of one report: the one object that a device perturbs with and an aggregator estimates with."""
        epsilons = [epsilon / self.draws for epsilon in self.offers or (self.epsilon,)]
        return assemble(self.mechanism, self.domain, epsilons, self.parameters)

    def perturb(self, index: Index, rng: Rng, offer: int) -> tuple[int, ...]:
        """Return the body of a report about an index of the domain; `offer` must not depend on the value."""
        if isinstance(self.randomizer, Offers):
            return self.randomizer.perturb(index.index, rng, offer)
        return self.randomizer.perturb(index.index, rng)

    @property
    def memoized_mechanism(self) -> LevelMechanism | None:
        """The mechanism, if a device answers from a memory of it; else None."""
        if self.repeat == "fresh":
            return None
        return self.randomizer if isinstance(self.randomizer, LevelMechanism) else None

    @property
    def release_seconds(self) -> int:
        """`release_every` in seconds; 0 without it."""
        return 0 if self.release_every is None else int(self.release_every.total_seconds())

    @property
    def has_release_policy(self) -> bool:
        """Whether its estimate is not simply released whenever something was counted."""
        return self.release_from is not None or self.release_every is not None

    @property
    def unit(self) -> str:
        return "" if self.domain.parts_field else self.domain.parts[0].unit

    def round_opens(self, round_: int) -> datetime | None:
        """Return when `round_` opens; None if the task is always open."""
        if self.opens is None:
            return None
        return self.opens + round_ * (self.round_every or timedelta(0))

    def current_round(self, now: datetime) -> int | None:
        """Return the round that is open at `now` (aware); None before the first opens and after the task closes."""
        if self.opens is not None and now < self.opens:
            return None
        if self.closes is not None and now >= self.closes:
            return None
        if self.opens is None or self.round_every is None or self.rounds == 1:
            return 0
        return min((now.astimezone(UTC) - self.opens) // self.round_every, self.rounds - 1)


def _utc(name: str, moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise TaskError(name, f"{moment.isoformat()} lies outside the years 1 to 9999 of UTC; move it") from error


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AUTO = "auto"
_OPEN = frozenset({"levels", "size", "sampled", "table"})  # what hush fills in
_INTERVAL = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a document says about the mechanism."""

    name: str | None
    given: Parameters
    shipped: str | None
    rounds: int
    repeat: Repeat


def task_of_document(document: Mapping[str, object], *, payload: bytes = b"", draft: bool = False) -> Task:
    """Validate a document.

    Args:
        document: the fields of a task.
        payload: the bytes that it was published as.
        draft: whether it is a person's file, in which `"auto"`, missing parameters and shipped tables are resolved. In
            a published task they would leave a choice to each reader.

    Raises:
        TaskError: the message names the field and the remedy.
    """
    fields = Fields(document)
    identifier, title, purpose = fields.text("id"), fields.text("title", ""), fields.text("purpose", "")
    given, offered = fields.anything("epsilon", None), fields.items("offers", [])
    choice = _choice(fields)
    times = {name: fields.moment_or_none(name, published=not draft) for name in ("opens", "closes")}
    enrolled, release_from = fields.integer_or_none("enrolled"), fields.integer_or_none("release_from")
    round_every, release_every, retention = (
        None if (text := fields.text_or_none(name)) is None else parse_interval(text, name)
        for name in ("round_every", "release_every", "retention")
    )
    domain = read_domain(fields.anything("domain"))
    fields.end()
    epsilon = _epsilon(given, choice)
    offers = tuple(parse_epsilon(offer, field="offers") for offer in offered)
    mechanism, parameters = _mechanism(choice, domain, offers or (epsilon,), draft=draft)
    return Task(
        id=identifier,
        title=title,
        purpose=purpose,
        epsilon=epsilon,
        offers=offers,
        mechanism=mechanism,
        parameters=parameters,
        domain=domain,
        enrolled=enrolled,
        release_from=release_from,
        rounds=choice.rounds,
        repeat=choice.repeat,
        round_every=round_every,
        release_every=release_every,
        retention=retention,
        **times,
        payload=payload,
        chosen=_left_open(choice) if draft else frozenset(),
    )


def _left_open(choice: _Choice) -> frozenset[str]:
    """Return what a draft leaves to hush: another version may choose differently, and tables may improve."""
    names = _OPEN - choice.given.given
    return names | {"mechanism"} if choice.name == _AUTO else names


def _choice(fields: Fields) -> _Choice:
    table = fields.anything("table", None)
    return _Choice(
        name=fields.text_or_none("mechanism"),
        repeat=cast("Repeat", fields.text("repeat", "fresh")),  # the task judges the words
        given=Parameters.read(fields, None if isinstance(table, str) else table),
        shipped=table if isinstance(table, str) else None,
        rounds=fields.integer("rounds", 1),
    )


def _mechanism(choice: _Choice, domain: Domain, totals: Sequence[Fraction], *, draft: bool) -> tuple[str, Parameters]:
    """Return the name of the mechanism and its parameters, which are complete for a draft."""
    if draft:
        return _decided(choice, domain, totals)
    if choice.shipped is not None:
        raise TaskError("table", "a published task holds the table itself; publish it with hush task publish")
    if choice.name == _AUTO:
        raise TaskError("mechanism", "'auto' is for task files; publish it with hush task publish, which decides")
    return _or_default(choice.name, domain), choice.given


def _decided(choice: _Choice, domain: Domain, totals: Sequence[Fraction]) -> tuple[str, Parameters]:
    """Decide once what a draft leaves open: the task is published with it."""
    rounds = min(max(choice.rounds, 1), ROUND_LIMIT)  # of other numbers the task complains
    per_round = [total / rounds for total in totals]
    name, given = choice.name, choice.given
    if choice.repeat == "sticky":
        name, given = _sticky(choice, domain, totals, rounds)
    if name == _AUTO:
        name, table = choose(domain, per_round)
        given = replace(given, table=table)
    elif choice.shipped is not None:
        given = replace(given, table=shipped(choice.shipped))
    name = _or_default(name, domain)
    return name, complete(name, domain, per_round, given)


def _or_default(name: str | None, domain: Domain) -> str:
    return fitting(domain)[0].name if name is None else name


def _sticky(choice: _Choice, domain: Domain, totals: Sequence[Fraction], rounds: int) -> tuple[str | None, Parameters]:
    """Return a mechanism with a choice for sticky answers, if the draft does not name another one."""
    for kind in fitting(domain):
        if issubclass(kind, LevelMechanism) and choice.name in (None, _AUTO, kind.name):
            chosen = kind.sticky(totals[-1], rounds, choice.given)
            if chosen is not None:
                return kind.name, chosen
    return choice.name, choice.given


def _epsilon(given: object, choice: _Choice) -> Fraction:
    if given is not None:
        return parse_epsilon(given)
    coins = choice.given.coins
    if coins is None:
        raise TaskError("epsilon", 'is missing; write for example epsilon = "1"')
    return coins.epsilon() * (2 if choice.repeat == "sticky" else choice.rounds)


def parse_interval(text: str, field: str) -> timedelta:
    """Return the length of time that is written as a number and s, m, h, d or w; a TaskError names the field."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise TaskError(field, f'{text[:40]!r} is not an interval; write a number and s, m, h, d or w, as in "1d"')
    try:
        return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError as error:
        raise TaskError(field, f"{text!r} is too long") from error


def interval_text(interval: timedelta) -> str:
    seconds = int(interval.total_seconds())
    unit = max((unit for unit, length in _SECONDS.items() if seconds % length == 0), key=_SECONDS.__getitem__)
    return f"{seconds // _SECONDS[unit]}{unit}"


def encode_document(task: Task) -> bytes:
    """Return the published form: sorted keys, no spaces, UTF-8, without empty fields."""
    document: dict[str, object] = {
        "id": task.id,
        "epsilon": decimal_text(task.epsilon),
        "mechanism": task.mechanism,
        "domain": task.domain.document(),
        "rounds": task.rounds,
    }
    named = ("title", "purpose", "enrolled", "release_from")
    document |= {name: value for name in named if (value := getattr(task, name))}
    document |= {
        name: moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        for name in ("opens", "closes")
        if (moment := getattr(task, name)) is not None
    }
    document |= {
        name: interval_text(length)
        for name in ("round_every", "release_every", "retention")
        if (length := getattr(task, name)) is not None
    }
    if task.repeat != "fresh":
        document["repeat"] = task.repeat
    if task.offers:
        document["offers"] = [decimal_text(offer) for offer in task.offers]
    document |= task.parameters.document()
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


PAYLOAD_LIMIT = TASK.bytes
"""Most bytes of a published task."""


def read_task(path: Path) -> Task:
    """Read a task from a TOML or JSON file, and fix its published bytes; a TaskError names the file."""
    try:
        text = read_file(path, DRAFT)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML or JSON task file") from error
    except UnicodeDecodeError as error:
        raise TaskError(str(path), "is not UTF-8 text; name a TOML or JSON task file") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be a task: {error}") from error
    return read_draft(text, str(path))


def read_draft(text: str, name: str) -> Task:
    """Read a task from TOML or JSON, and fix its published bytes; a TaskError names the draft."""
    try:
        document = _object(read_json(text, DRAFT)) if text.lstrip().startswith("{") else read_toml(text, DRAFT)
    except ValueError as error:
        raise TaskError(name, f"cannot be parsed: {error}") from error
    if isinstance(document.get("task"), dict):
        raise TaskError(name, "is a scenario, not a task; write the content of [task] to a separate file")
    try:
        return make_task(document)
    except TaskError as error:
        error.args = (f"{name}: {error}",)
        raise


def make_task(document: Mapping[str, object]) -> Task:
    """Validate a task given as a mapping, complete it, and encode it; a TaskError names field and remedy."""
    made = task_of_document(document, draft=True)
    return replace(decode_task(encode_document(made)), chosen=made.chosen)


def match_published(task: Task, payload: bytes) -> Task | None:
    """Return the task that is published under the id of `task`, or None if it asks something else.

    Tasks never change, but another version of hush may have chosen differently what a draft leaves open: the G of
    `multilevel`, the table, with `"auto"` the mechanism. Then the published choice stays, and its reports count.
    """
    if payload == task.payload:
        return task
    try:
        there = decode_task(payload)
        names = [field.name for field in fields(Parameters)]
        given = {name: getattr((there if name in task.chosen else task).parameters, name) for name in names}
        kind = named(there.mechanism)
        free = "mechanism" in task.chosen and kind is not None and kind.auto
        mechanism = there.mechanism if free else task.mechanism
        asked = replace(task, mechanism=mechanism, parameters=Parameters(**given), payload=payload)
    except TaskError:
        return None
    return there if asked == there else None


def decode_task(payload: bytes) -> Task:
    """Return the task in a retained message; its digest is that of these bytes.

    Raises:
        TaskError: not UTF-8 JSON, too long, a duplicate key, an unknown field, or not a legal task.
    """
    try:
        document = _object(read_json(bytes(payload), TASK, published=True))
    except ValueError as error:
        raise TaskError("task", f"cannot be read: {error}") from error
    return task_of_document(document, payload=bytes(payload))


def _object(document: object) -> dict[str, object]:
    if not isinstance(document, dict):
        raise TaskError("task", "is not a JSON object; write the fields of the task in braces")
    return document
