"""A task: what is asked of every device. Immutable; named by its id, bound by the digest of its published bytes."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from types import UnionType
from typing import Literal, get_args

from hush_common.domain import Domain, NumberDomain, VectorDomain
from hush_common.epsilon import LARGEST, SMALLEST, decimal_text
from hush_common.errors import EpsilonError, TaskError
from hush_common.mechanisms.build import assemble
from hush_common.mechanisms.mechanism import Levelled, Mechanism
from hush_common.mechanisms.offers import Offers
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import known, named
from hush_common.report import report_digest_of
from hush_common.untrusted import is_printable

__all__ = ["CLOCK_SKEW", "MOST_OFFERS", "ROUND_LIMIT", "Repeat", "Task", "digest_of", "is_task_id"]

Repeat = Literal["fresh", "sticky"]
"""How a device answers round after round: with new noise each time, or from a memory drawn once."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of a device and of an aggregator may disagree before a report counts as early or late."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TEXT_LIMIT = 500
ROUND_LIMIT = 1_000_000
"""Most rounds of one task."""
_SECOND = timedelta(seconds=1)
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

    Args:
        id: a-z, 0-9 and -, at most 64 characters.
        epsilon: the loss of a device that answers *every* round. With `repeat = "sticky"` that is beside the pattern of
            rounds in which its value changed: see `hush_common.mechanisms.sticky`.
        mechanism: how a value becomes a report; `hush_common.mechanisms.registry` says which fit a domain.
        domain: which values are legal.
        parameters: what the mechanism needs besides, complete.
        offers: the totals among which a device may choose, ascending, `epsilon` the last; empty offers `epsilon` alone.
        title: one line for a person.
        purpose: why it is asked; shown to the person whose device answers. Lifetime budgets are kept per purpose.
        rounds: how often it is asked; a device answers each round at most once.
        repeat: `"fresh"`: a new draw each round, which costs `epsilon / rounds`. `"sticky"`: answers from a memory that
            is drawn once, for numbers by `multilevel` and for bits.
        round_every: time from one round to the next; needed with more than one round, as is `opens`.
        opens: when the first round opens (aware datetime); None is always open.
        closes: when the task stops counting reports; None is never.
        enrolled: how many devices were asked, where that is known; it bounds what silence may hide.
        payload: the published bytes, exactly; without them no device can answer.
        chosen: which of `mechanism` and the names of `parameters` the draft left to hush; see
            `hush_common.task_file.settled`. Not published, and no part of what makes tasks equal.
        legacy: admits `outside = "refuse"`, for tasks that an aggregator has counted before: under them the silence of
            a device told its value. Their reports and estimates go on; nobody publishes or answers one. It is False
            afterwards in any other task.

    Raises:
        TaskError: naming the field and the remedy.
    """

    id: str
    epsilon: Fraction
    mechanism: str
    domain: Domain
    parameters: Parameters = field(default_factory=Parameters)
    offers: tuple[Fraction, ...] = ()
    title: str = ""
    purpose: str = ""
    rounds: int = 1
    repeat: Repeat = "fresh"
    round_every: timedelta | None = None
    opens: datetime | None = None
    closes: datetime | None = None
    enrolled: int | None = None
    payload: bytes = field(default=b"", repr=False)
    chosen: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    legacy: bool = False

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
        self._check_outside()
        self._check_repeat()
        self._check_epsilon()
        self._check_offers()
        self._check_times()
        _ = self.randomizer  # a mechanism that does not fit fails here, not on a device

    def _check_types(self) -> None:
        """What is annotated is checked, too: a float for an epsilon, say, would make every probability inexact."""
        for name, (kinds, wanted) in _TYPES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TaskError(name, f"{str(value)[:40]!r} is of type {type(value).__name__}; write {wanted}")
        for name, amounts in (("epsilon", (self.epsilon,)), ("offers", self.offers)):
            for amount in amounts:
                if not isinstance(amount, Fraction):
                    raise EpsilonError(name, f'{str(amount)[:40]!r} is not exact; write Fraction("0.5")')

    def _check_outside(self) -> None:
        parts = self.domain.coordinates if isinstance(self.domain, VectorDomain) else (self.domain,)
        refuses = any(isinstance(part, NumberDomain) and part.outside == "refuse" for part in parts)
        admitted = bool(self.legacy)
        object.__setattr__(self, "legacy", refuses)
        if refuses and not admitted:
            raise TaskError(
                "domain.outside",
                "'refuse' is no longer supported: a device that stays silent about some values reveals which it "
                "has; drop it, and values outside are moved to the nearer bound",
            )

    def _check_repeat(self) -> None:
        if not 1 <= self.rounds <= ROUND_LIMIT:
            raise TaskError("rounds", f"{str(self.rounds)[:40]} is outside 1 to {ROUND_LIMIT}")
        if self.repeat not in get_args(Repeat):
            raise TaskError("repeat", f"{self.repeat!r} is neither 'fresh' nor 'sticky'; choose one")
        if self.repeat == "fresh":
            return
        if self._levelled is None:
            others = " and ".join(kind.name for kind in known() if issubclass(kind, Levelled))
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
        if not 2 <= len(self.offers) <= MOST_OFFERS:  # noqa: PLR2004 - one is no choice
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

    @cached_property
    def digest(self) -> bytes:
        """The 32 bytes that identify the task in pins, ledgers, stores, recalls and documents.

        Raises:
            TaskError: the task has no published bytes, and would be taken for any other that has none.
        """
        if not self.payload:
            raise TaskError(
                "payload", "is empty, so that no report could be bound to this task; read it with decode_task"
            )
        return digest_of(self.payload)

    @cached_property
    def report_digest(self) -> bytes:
        """The first 16 bytes of `digest`, which every report carries: no answer to another task is averaged in.

        Raises:
            TaskError: as `digest`.
        """
        return report_digest_of(self.digest)

    @cached_property
    def _levelled(self) -> type[Levelled] | None:
        """The mechanism of a sticky task that a memory can be drawn for."""
        kind = named(self.mechanism) if self.repeat == "sticky" else None
        return kind if kind is not None and issubclass(kind, Levelled) else None

    @property
    def draws(self) -> int:
        """Over how many draws `epsilon` is split: one a round, or the G + 1 of a sticky memory."""
        kind = self._levelled
        return self.rounds if kind is None else 1 + kind.levels_of(self.parameters)

    @property
    def epsilon_per_round(self) -> Fraction:
        """Loss of one report under the dearest offer."""
        return self.epsilon / self.draws

    @cached_property
    def randomizer(self) -> Mechanism | Offers:
        """The mechanism of one report: the one object that a device perturbs with and an aggregator estimates with."""
        epsilons = [epsilon / self.draws for epsilon in self.offers or (self.epsilon,)]
        return assemble(self.mechanism, self.domain, epsilons, self.parameters)

    @property
    def levelled(self) -> Levelled | None:
        """The mechanism, if a device answers from a memory of it; else None."""
        if self.repeat == "fresh":
            return None
        return self.randomizer if isinstance(self.randomizer, Levelled) else None

    @property
    def unit(self) -> str:
        return self.domain.unit if isinstance(self.domain, NumberDomain) else ""

    def round_opens(self, round_: int) -> datetime | None:
        """When `round_` opens; None if the task is always open."""
        if self.opens is None:
            return None
        return self.opens + round_ * (self.round_every or timedelta(0))

    def current_round(self, now: datetime) -> int | None:
        """The round that is open at `now` (aware), or None before the first opens and after the task closes."""
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
