"""`float`: read a value from the last bits of floating-point noise (Mironov 2012).

numpy draws U = k·2^-53 and returns loc + b·log(2U) below one half, loc - b·log(2 - 2U) above. So a report y is
possible under the value x only if one of these few numbers, added to x, *is* y, bit for bit. An attacker who knows b
tries both values. If only one of them can produce y, the report reveals it, whatever epsilon promised.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hush_attacks.demonstration import Demonstration
from hush_common.domain import NumberDomain
from hush_common.epsilon import at_most_sure, posterior
from hush_common.formatting import fixed, percent_at_most
from hush_common.mechanisms import Laplace
from hush_common.rng import Rng, SystemRng
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


EPSILONS = tuple(Fraction(one) for one in ("0.1", "0.5", "1", "2", "4"))
VALUES = (0, 1)
_UNIT = 2.0**-53
_NEAR = 4  # y - x is rounded, so U is known up to a few units

Report = tuple[int, float]
"""A value and its report."""


def possible_for_numpy(y: float, x: int, scale: float) -> bool:
    """Whether some U makes x + numpy's Laplace(0, scale) equal to y in every bit."""
    noise = y - x
    guess = round(math.exp(-abs(noise) / scale) / 2 / _UNIT)
    tails = [k * _UNIT for k in range(max(guess - _NEAR, 1), guess + _NEAR + 1)]
    if noise < 0:
        return any(x + scale * math.log(u + u) == y for u in tails)
    return any(x - scale * math.log(2.0 - (1 - u) - (1 - u)) == y for u in tails)


def verdicts(reports: Sequence[Report], possible: Callable[[float, int], bool]) -> tuple[int, int]:
    """How many reports leave one possible value only, and it is the true one; and how many, and it is not."""
    right = wrong = 0
    for value, y in reports:
        left = [x for x in VALUES if possible(y, x)]
        right += left == [value]
        wrong += left == [1 - value]
    return right, wrong


def naive_reports(epsilon: Fraction, count: int, rng: np.random.Generator) -> list[Report]:
    """As a device would make them that adds numpy's noise, `count` for each value."""
    scale = 1 / float(epsilon)
    return [(x, x + float(rng.laplace(0, scale))) for x in VALUES for _ in range(count)]


def our_reports(epsilon: Fraction, count: int, rng: Rng) -> list[Report]:
    """As hush's devices make them, decoded to numbers."""
    domain = NumberDomain(0.0, 1.0)
    mechanism = Laplace(epsilon, domain.steps)
    ends = {x: domain.index(x).scalar for x in VALUES}
    return [(x, domain.number_at(mechanism.perturb(ends[x], rng)[0])) for x in VALUES for _ in range(count)]


def run(seed: int | None = None, count: int = 1000) -> Demonstration:
    """Attack `count` reports of each of two values at each epsilon."""
    generator, rng = np.random.default_rng(seed), SystemRng()
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for epsilon in EPSILONS:
        possible = partial(possible_for_numpy, scale=1 / float(epsilon))
        right, wrong = verdicts(naive_reports(epsilon, count, generator), possible)
        ours = verdicts(our_reports(epsilon, count, rng), possible)
        label = f"{float(epsilon):g}"
        certain, guessed = right / (2 * count), ours[0] / max(sum(ours), 1)
        figures |= {
            f"naive identified, epsilon {label}": certain,
            f"naive wrong, epsilon {label}": wrong / (2 * count),
            f"naive with a verdict, epsilon {label}": (right + wrong) / (2 * count),
            f"hush with a verdict, epsilon {label}": sum(ours) / (2 * count),
            f"naive right among verdicts, epsilon {label}": right / max(right + wrong, 1),
            f"hush verdicts, epsilon {label}": float(sum(ours)),
            f"hush right among verdicts, epsilon {label}": guessed,
            f"allowed, epsilon {label}": posterior(epsilon),
        }
        shares = (certain, wrong / (2 * count), guessed)
        allowed = percent_at_most(at_most_sure(epsilon))
        rows.append((label, *(f"{fixed(share, 1, scale=100)} %" for share in shares), allowed))
    return Demonstration(
        "float",
        "Read a yes or no from the last bits of one report",
        (
            "epsilon",
            "numpy: value found with certainty",
            "numpy: wrong value found",
            "hush: verdicts that are right",
            "most that epsilon allows",
        ),
        tuple(rows),
        "The last bits of floating-point noise reveal the value. hush draws integers. There the same attack only "
        "guesses, and is right no more often than epsilon allows.",
        figures,
        partial(_draw, figures),
    )


def _draw(figures: dict[str, float], palette: Palette = LIGHT) -> "Figure":
    """Draw, for either noise and for the most that epsilon allows, the same share: of right ones among all verdicts."""
    with styled(palette):
        figure = canvas(3.9)
        axes = figure.subplots()
        x = np.arange(len(EPSILONS))
        for shift, key, name, color in (
            (-0.2, "naive", "numpy's noise", palette.noisy),
            (0.2, "hush", "hush", palette.true),
        ):
            heights = [100 * figures[f"{key} right among verdicts, epsilon {float(one):g}"] for one in EPSILONS]
            bars = axes.bar(x + shift, heights, 0.38, color=color, label=name)
            seen = [figures[f"{key} with a verdict, epsilon {float(one):g}"] for one in EPSILONS]
            words = [f"{fixed(share, 0, scale=100)} %" for share in seen]
            for bar, word in zip(bars, words, strict=True):
                center = bar.get_x() + bar.get_width() / 2
                axes.text(center, 3, word, ha="center", fontsize=8.5, color=palette.ground)
        for place, one in enumerate(EPSILONS):
            most = 100 * figures[f"allowed, epsilon {float(one):g}"]
            label = "the most that this ε allows" if place == 0 else None
            axes.plot([place - 0.42, place + 0.42], [most, most], color=palette.ink, lw=2.2, label=label)
        axes.set_xticks(x, [f"ε = {float(one):g}" for one in EPSILONS])
        axes.set_ylim(0, 118)
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_ylabel("right, % of the verdicts")
        axes.set_xlabel("in the bars: reports on which there is a verdict")
        axes.set_title("A verdict on one report, of two possible values")
        axes.legend(loc="upper left", ncols=3, fontsize=10)
        finish(figure)
    return figure
