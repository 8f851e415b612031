"""One exercise for each chapter. The right answer is computed from the law."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hush_tour.needed import by_local_noise, local_error

_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question with a number for an answer.

    Args:
        question: what to compute.
        hint: what to think of after a wrong answer.
        solve: computes the right answer.
    """

    question: str
    hint: str
    solve: Callable[[], float]

    def is_right(self, answer: float) -> bool:
        """Whether an answer is within 2 % of the right one, so that it may be rounded."""
        return math.isclose(answer, self.solve(), rel_tol=_TOLERANCE)

    def check(self, answer: float) -> str:
        """Return what to say about an answer."""
        return f"{answer:g} is right." if self.is_right(answer) else f"{answer:g} is not right. {self.hint}"


EXERCISES = {
    "heights": Exercise(
        "500 people add Laplace noise at ε = 1, with bounds of 120 and 220 cm. What is the standard deviation of the "
        "noise in their mean, in cm?",
        "Laplace noise of scale b has variance 2b², b is (upper - lower)/ε, and the variance of a mean falls as 1/n.",
        lambda: 100 * local_error(500, 2.0),
    ),
    "mechanism": Exercise(
        "Each device adds Laplace noise to a number between 0 and 1, at ε = 0.5. How many devices does a standard "
        "deviation of 0.02 of their mean take?",
        "The variance of one report is 2/ε²; divide it by the square of the error.",
        lambda: float(by_local_noise(0.02, Fraction(1, 2))),
    ),
    "slides": Exercise(
        "Two values are 0.3 apart, and the Laplace noise has scale 0.25. What is the largest ratio of the densities of "
        "their reports?",
        "In the exponent is the distance of the values, divided by the scale.",
        lambda: math.exp(0.3 / 0.25),
    ),
    "notes": Exercise(
        "The sensitivity is 2 and ε = 0.5. Which absolute value does the Laplace noise exceed with probability 5 %?",
        "The scale is b = Δ/ε, and P(|Z| > t) = e^(-t/b).",
        lambda: 2 / 0.5 * math.log(20),
    ),
    "lecture": Exercise(
        "Randomized response sends the true answer with probability 0.9, and the opposite otherwise. What is its ε?",
        "e^ε is the largest ratio of the probabilities of one report under the two answers.",
        lambda: math.log(0.9 / 0.1),
    ),
}
