"""A task: what is asked of every device. Immutable; named by its id, bound by the digest of its published bytes."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Literal

from hush_common.domain import BitDomain, Domain, NumberDomain
from hush_common.epsilon import LARGEST, SMALLEST, decimal_text, log_ceiling
from hush_common.errors import EpsilonError, TaskError
from hush_common.mechanisms.randomized_response import coin_loss_ratio
from hush_common.report import DIGEST_BYTES

__all__ = ["CLOCK_SKEW", "Coins", "MechanismName", "Task", "digest_of", "is_task_id"]

MechanismName = Literal["laplace", "randomized_response"]

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of a device and of an aggregator may disagree before a report counts as early or late."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TEXT_LIMIT = 500
_ROUND_LIMIT = 1_000_000


def is_task_id(text: str) -> bool:
    """Whether `text` may name a task: a-z, 0-9 and -, at most 64, not starting with -."""
    return _ID.fullmatch(text) is not None


def digest_of(payload: bytes) -> bytes:
    """The 8 bytes that bind a report to a task: the head of SHA-256 over the published bytes, in any language."""
    return hashlib.sha256(payload).digest()[:DIGEST_BYTES]


@dataclass(frozen=True, slots=True)
class Coins:
    """Two-coin randomized response: answer truthfully with probability `truth`, else "yes" with probability `yes`."""

    truth: Fraction
    yes: Fraction

    def epsilon(self) -> Fraction:
        """The loss of one answer, rounded up to six decimals, from all four ratios.

        Raises:
            TaskError: a probability outside [0, 1], no information, or a loss without bound.
        """
        for name, p in (("truth", self.truth), ("yes", self.yes)):
            if not 0 <= p <= 1:
                raise TaskError(f"coins.{name}", f"{decimal_text(p)} is no probability; write a number from 0 to 1")
        if self.truth == 0:
            raise TaskError("coins.truth", "0 means that every answer is a coin: nothing can be learned; raise it")
        ratio = coin_loss_ratio(self.truth, self.yes)
        if ratio is None:
            raise TaskError(
                "coins", "some answer gives the bit away (infinite epsilon); keep both strictly inside 0 and 1"
            )
        try:
            return log_ceiling(ratio)
        except ValueError as error:
            raise TaskError("coins", "these coins lose more than epsilon = 50; lower truth") from error


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of every device.

    Args:
        id: a-z, 0-9 and -, at most 64 characters.
        epsilon: the loss of a device that answers *every* round; one round costs `epsilon / rounds`.
        mechanism: `"laplace"` for numbers, `"randomized_response"` for bits.
        domain: which values are legal.
        title: one line for a person.
        purpose: why it is asked; shown to the person whose device answers. Lifetime budgets are kept per purpose.
        rounds: how often it is asked; a device answers each round at most once.
        round_every: time from one round to the next; needed with more than one round, as is `opens`.
        opens: when the first round opens (aware datetime); None is always open.
        closes: when the task stops counting reports; None is never.
        coins: two-coin form of randomized response; its epsilon is computed and must be the declared one.
        payload: the published bytes, exactly.

    Raises:
        TaskError: naming the field and the remedy.
    """

    id: str
    epsilon: Fraction
    mechanism: MechanismName
    domain: Domain
    title: str = ""
    purpose: str = ""
    rounds: int = 1
    round_every: timedelta | None = None
    opens: datetime | None = None
    closes: datetime | None = None
    coins: Coins | None = None
    payload: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not is_task_id(self.id):
            raise TaskError(
                "id", f"{self.id[:80]!r} is not a task id; use a-z, 0-9 and -, at most 64, not starting with -"
            )
        for name in ("title", "purpose"):
            text = getattr(self, name)
            if len(text) > _TEXT_LIMIT or not text.isprintable():
                raise TaskError(
                    name, f"{text[:40]!r} is no line of at most {_TEXT_LIMIT} printable characters; shorten it"
                )
        self._check_epsilon()
        self._check_mechanism()
        self._check_times()

    def _check_epsilon(self) -> None:
        if not SMALLEST <= self.epsilon <= LARGEST:
            raise EpsilonError("epsilon", f"{decimal_text(self.epsilon)} is outside [0.000001, 50]")
        if not 1 <= self.rounds <= _ROUND_LIMIT:
            raise TaskError("rounds", f"{self.rounds} is outside 1 to {_ROUND_LIMIT}")
        if self.epsilon_per_round < SMALLEST:
            raise EpsilonError(
                "epsilon", f"split over {self.rounds} rounds it falls below 0.000001 a round; ask for fewer rounds"
            )

    def _check_mechanism(self) -> None:
        fitting = "laplace" if isinstance(self.domain, NumberDomain) else "randomized_response"
        if self.mechanism != fitting:
            kind = "number" if isinstance(self.domain, NumberDomain) else "bit"
            raise TaskError("mechanism", f"{self.mechanism!r} does not fit a {kind}; use {fitting!r}")
        if self.coins is None:
            return
        if not isinstance(self.domain, BitDomain):
            raise TaskError("coins", 'coins answer a yes/no question; give the domain kind = "bit", or drop them')
        if self.coins.epsilon() * self.rounds != self.epsilon:
            right = decimal_text(self.coins.epsilon() * self.rounds)
            raise EpsilonError("epsilon", f"{decimal_text(self.epsilon)} is not what these coins cost; write {right!r}")

    def _check_times(self) -> None:
        for name in ("opens", "closes"):
            moment = getattr(self, name)
            if moment is not None and moment.utcoffset() is None:
                raise TaskError(name, f"{moment.isoformat()} has no time zone; append Z or an offset")
        if self.opens is not None and self.closes is not None and self.closes <= self.opens:
            raise TaskError("closes", f"{self.closes.isoformat()} is not after opens = {self.opens.isoformat()}")
        if self.rounds > 1 and (self.round_every is None or self.opens is None):
            raise TaskError("rounds", f'{self.rounds} rounds need opens and round_every (for example "1d")')
        if self.round_every is not None and self.round_every < timedelta(seconds=1):
            raise TaskError("round_every", 'shorter than a second; write for example "1d"')
        if self.round_every is not None and self.opens is not None:
            try:
                self.round_opens(self.rounds - 1)
            except OverflowError as error:
                raise TaskError(
                    "round_every", "the last round lies beyond the year 9999; ask for fewer rounds"
                ) from error

    @cached_property
    def digest(self) -> bytes:
        """8 bytes that stand in every report: an answer to other bounds or another epsilon is never averaged in."""
        return digest_of(self.payload)

    @property
    def epsilon_per_round(self) -> Fraction:
        return self.epsilon / self.rounds

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
