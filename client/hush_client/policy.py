"""What a device is willing to spend: its own limits, which no task can raise."""

from dataclasses import dataclass
from fractions import Fraction

from hush_common.errors import EpsilonError

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of each device. Time resets none of them.

    Args:
        max_epsilon: most that one task may cost over all its rounds.
        lifetime: most that all tasks of one purpose may cost together. Whoever asks words the purpose, so a new wording
            has a new budget: where not all who may publish tasks are trusted to that point, set `total`.
        total: most that all tasks of all purposes may cost together; None sets no such limit.
        sticky: whether to answer tasks with `repeat = "sticky"`, whose epsilon leaves out that a value changed.

    Raises:
        EpsilonError: a limit that is no exact number (a float among them), or negative.
    """

    max_epsilon: Fraction = Fraction(4)
    lifetime: Fraction = Fraction(4)
    total: Fraction | None = None
    sticky: bool = False

    def __post_init__(self) -> None:
        for name in ("max_epsilon", "lifetime", "total"):
            limit = getattr(self, name)
            if name == "total" and limit is None:
                continue
            if isinstance(limit, bool) or not isinstance(limit, Fraction | int) or limit < 0:
                raise EpsilonError(name, f'{limit!r} is no exact limit; write for example Fraction("0.5")')
            object.__setattr__(self, name, Fraction(limit))
