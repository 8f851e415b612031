"""Finding: what an audit established about one mechanism, and the JSON object of it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hush_common.epsilon import decimal_text
from hush_simulations.auditing.bound import Measured, Tested

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an audit found.

    Args:
        name: of what was audited.
        samples: reports of each of the two inputs.
        declared: the epsilon that it claims; None where it claims none.
        inputs: the two values, in words.
        measured: on its reports.
        highest_bound: the most that so many reports can show.
    """

    name: str
    samples: int
    declared: Fraction | None
    inputs: tuple[str, str]
    measured: Measured
    highest_bound: float

    @property
    def is_violation(self) -> bool:
        """Whether more is given away than declared."""
        return self.declared is not None and self.measured.bound > float(self.declared)

    @property
    def verdict(self) -> str | None:
        """`"violation"` or `"consistent"`; None where nothing is declared."""
        if self.declared is None:
            return None
        return "violation" if self.is_violation else "consistent"

    def rule(self, test: Tested) -> list[tuple[str, str]]:
        """The guesses that are made: which value, and for which reports."""
        return [(value, words) for value, words in zip(self.inputs, test.rule, strict=True) if words]

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document = {"name": self.name, "samples": self.samples, "epsilon_at_least": self.measured.bound}
        if self.declared is not None:
            document |= {"declared": decimal_text(self.declared), "verdict": self.verdict}
        best = self.measured.best
        return document | {
            "confidence": self.measured.confidence,
            "highest_bound": self.highest_bound,
            "rule": self._rule(best),
            "shown": self.measured.samples,
            "guesses": best.guesses,
            "right": best.right,
            "tests": [
                {
                    "kind": test.kind,
                    "epsilon_at_least": test.bound,
                    "confidence": test.confidence,
                    "rule": self._rule(test),
                    "guesses": test.guesses,
                    "right": test.right,
                }
                for test in self.measured.tests
            ],
        }

    def _rule(self, test: Tested) -> list[dict[str, str]]:
        return [{"guess": value, "if": words} for value, words in self.rule(test)]
