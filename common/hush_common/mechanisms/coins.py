"""The two coins of `randomized_response`, as a task holds them, and what they cost."""

import re
from dataclasses import dataclass
from fractions import Fraction

from hush_common.epsilon import decimal_text, log_ceiling
from hush_common.errors import TaskError
from hush_common.task_fields import Fields

__all__ = ["Coins", "coin_loss_ratio"]

_PROBABILITY = re.compile(r"[01](\.[0-9]{1,18})?")


@dataclass(frozen=True, slots=True)
class Coins:
    """Two-coin randomized response: answer truthfully with probability `truth`, else "yes" with probability `yes`."""

    truth: Fraction
    yes: Fraction

    def __post_init__(self) -> None:
        for name in ("truth", "yes"):
            if not isinstance(getattr(self, name), Fraction):
                raise TaskError(f"coins.{name}", f'{getattr(self, name)!r} is not exact; write Fraction("0.5")')

    def epsilon(self) -> Fraction:
        """The loss of one answer, rounded up to six decimals, from all four ratios.

        Raises:
            TaskError: a probability outside [0, 1], no information, or a loss without bound.
        """
        for name, p in (("truth", self.truth), ("yes", self.yes)):
            if not 0 <= p <= 1:
                raise TaskError(f"coins.{name}", f"{decimal_text(p)} is not a probability; write a number from 0 to 1")
        if self.truth == 0:
            raise TaskError(
                "coins.truth", "0 means that every answer is a coin flip and nothing can be learned; raise it"
            )
        ratio = coin_loss_ratio(self.truth, self.yes)
        if ratio is None:
            raise TaskError(
                "coins", "one of the answers gives the bit away (infinite epsilon); keep both strictly between 0 and 1"
            )
        try:
            return log_ceiling(ratio)
        except ValueError as error:
            raise TaskError("coins", "these coins cost more than epsilon = 50; lower truth") from error

    @classmethod
    def read(cls, document: object) -> "Coins":
        """From the table `coins` of a task document.

        Raises:
            TaskError: naming the field and the remedy.
        """
        fields = Fields(document, "coins")
        coins = cls(*(_probability(f"coins.{name}", fields.text(name)) for name in ("truth", "yes")))
        fields.end()
        return coins

    def document(self) -> dict[str, object]:
        """The same table for the published form."""
        return {"truth": decimal_text(self.truth), "yes": decimal_text(self.yes)}


def _probability(field: str, text: str) -> Fraction:
    if not _PROBABILITY.fullmatch(text):
        raise TaskError(field, f'{text[:40]!r} is not an exact probability; write for example "0.5"')
    return Fraction(text)


def coin_loss_ratio(truth: Fraction, yes: Fraction) -> Fraction | None:
    """e^epsilon of the two-coin form: the largest of all four ratios. None if some answer betrays the bit.

    Args:
        truth: probability that the first coin says "answer truthfully", in [0, 1].
        yes: probability that the second coin says "yes", in [0, 1].
    """
    one = ((1 - truth) * yes, truth + (1 - truth) * yes)
    zero = (1 - one[0], 1 - one[1])
    if 0 in one + zero:
        return None
    return max(one[1] / one[0], one[0] / one[1], zero[0] / zero[1], zero[1] / zero[0])
