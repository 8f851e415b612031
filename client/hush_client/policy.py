"""What a device is willing to spend: its own limits, which no task can raise."""

from dataclasses import dataclass
from fractions import Fraction

from hush_common.errors import EpsilonError

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of each device.

    Args:
        max_epsilon: most that one task may cost over all its rounds.
        lifetime: most that all tasks of one purpose may cost together, for ever; time does not reset it.

    Raises:
        EpsilonError: a limit that is no exact number (a float among them), or negative.
    """

    max_epsilon: Fraction = Fraction(4)
    lifetime: Fraction = Fraction(4)

    def __post_init__(self) -> None:
        for name in ("max_epsilon", "lifetime"):
            limit = getattr(self, name)
            if isinstance(limit, bool) or not isinstance(limit, Fraction | int) or limit < 0:
                raise EpsilonError(name, f'{limit!r} is no exact limit; write for example Fraction("0.5")')
            object.__setattr__(self, name, Fraction(limit))
