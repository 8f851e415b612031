"""The limits of what a device spends, which no task can raise."""

from dataclasses import dataclass
from fractions import Fraction

from hush_client.limits import check_type
from hush_common.epsilon import decimal_fraction
from hush_common.errors import EpsilonError


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """The limits of each device. Time resets none of them.

    Each is exact: a `Fraction`, an integer, or decimal text such as `"0.5"`. A float is refused.

    Raises:
        EpsilonError: a limit is not exact (such as a float), or negative.
        TypeError: `sticky` is not True or False: "no" would mean yes.
    """

    max_epsilon: Fraction  #: most that one task may cost over all its rounds
    #: Most that all tasks of one purpose may cost together. A new wording of the purpose has a new budget, so set
    #: `total` unless you trust everyone who may publish tasks.
    lifetime: Fraction
    total: Fraction | None  #: most that all tasks of all purposes may cost together; None sets no such limit
    sticky: bool  #: whether to answer tasks with `repeat = "sticky"`, whose epsilon does not cover that a value changed

    def __init__(
        self,
        max_epsilon: Fraction | int | str = Fraction(4),
        lifetime: Fraction | int | str = Fraction(4),
        total: Fraction | int | str | None = None,
        sticky: bool = False,
    ) -> None:
        object.__setattr__(self, "max_epsilon", _limit("max_epsilon", max_epsilon))
        object.__setattr__(self, "lifetime", _limit("lifetime", lifetime))
        object.__setattr__(self, "total", None if total is None else _limit("total", total))
        check_type("sticky", sticky, bool, "True or False")
        object.__setattr__(self, "sticky", sticky)


def _limit(name: str, given: object) -> Fraction:
    exact, shown = decimal_fraction(given) if isinstance(given, str) else given, repr(given)[:40]
    if exact is None:
        raise EpsilonError(name, f'{shown} is not a decimal number from 0 to 999; write for example "0.5"')
    if isinstance(exact, bool) or not isinstance(exact, Fraction | int):
        raise EpsilonError(name, f'{shown} is not exact; write text such as "0.5", or a Fraction')
    if exact < 0:
        raise EpsilonError(name, f"{str(exact)[:40]} is negative; write 0 to spend nothing")
    return Fraction(exact)
