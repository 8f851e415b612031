"""Sticky answers (memoization): a repeated task that a device answers with reports drawn once.

Specification. For a mechanism on the levels {0, …, G} (`multilevel`, or a bit, whose levels are 0 and 1) at loss e, a
device draws before its first answer, once,

- a report z_j for each level j: by the mechanism, from a value that lies on level j, independent of all others,
- a threshold alpha, uniform in {0, …, m - 1}, and
- a substitute, an index uniform in {0, …, m}, which replaces the value in every round in which it is missing.

In every round a value at index i of {0, …, m} has the level s = floor(i·G/m) + [alpha < i·G mod m], and the report is
z_s. Alpha, all z and the substitute are secret and kept; no round draws anything.

One round. P(alpha < i·G mod m) = (i·G mod m)/m is the rounding of the mechanism, and z is independent of alpha: the
report has exactly the mechanism's law, so that the estimate of a round is what it always was. The rounds of one device
share their noise: a mean over rounds is hardly more precise than one of them, a difference of two is.

Where a value is missing. Given the substitute, a sequence with missing values is one of legal values, and the law of
its reports is a mixture of theirs: all that is said of any two sequences below holds for these, too. One drawn anew
each round would show as changes.

Privacy of all T rounds together. The *pattern* of a sequence of values is which rounds share a level. Given thresholds
under which two sequences have the same pattern, of k groups of rounds, the ratio of the probabilities of any reports is
a product of k ratios of one z each, hence at most e^(k·e), and k ≤ G + 1. Averages over thresholds keep the bound: for
any two sequences x, x' of values, any reports y and any pattern w that both can have,

    P(y | x, w) ≤ e^epsilon · P(y | x', w),    epsilon = (G + 1)·e,

and permuted levels attain it once there are G + 1 rounds. This epsilon is what the task declares, and what a device
charges in full with its first answer: were a slot charged when a value first needs it, the ledger, and every refusal
made of it, would tell of the value. Values that never change have one pattern, of one group: they lose e, however many
rounds there are.

What it does not hide is the pattern. Two rounds with different reports prove that the value changed in between, and no
epsilon bounds that. No scheme of this kind could: reports that carry I about each of T unrelated values carry T·I
together, and an epsilon bounds that sum. A change from i to i' changes the level with probability at most
G·|i - i'|/m. So sticky answers suit values that rarely change; `repeat = "fresh"` hides every change, at epsilon/T a
round. Over T ≤ G + 1 rounds that is no less, so that sticky answers would cost the same and hide less.

Source: Ding, Kulkarni and Yekhanin 2017 (alpha-point rounding with memoized reports, for G = 1; their behaviour
patterns are the patterns here).
"""

from dataclasses import dataclass, field

from hush_common.mechanisms.mechanism import LevelMechanism
from hush_common.rng import Rng


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a device ever draws for a sticky task. Secret: it reveals the values from the reports."""

    threshold: int = field(repr=False)  #: alpha
    reports: tuple[int, ...] = field(repr=False)  #: z, one for each level
    substitute: int = field(repr=False)  #: the index that replaces a missing value

    @classmethod
    def draw(cls, mechanism: LevelMechanism, rng: Rng) -> "Memory":
        """A fresh memory. It needs no value, so that nothing about it can depend on one."""
        steps, levels = mechanism.grid
        one = mechanism.of_levels
        reports = tuple(one.perturb(level, rng)[0] for level in range(levels + 1))
        return cls(rng.randbelow(steps), reports, rng.randbelow(steps + 1))

    def body(self, mechanism: LevelMechanism, index: int | None) -> tuple[int, ...]:
        """Return the body of a report about a value at `index`, or a missing one (None); ValueError outside [0, m]."""
        steps, levels = mechanism.grid
        index = self.substitute if index is None else index
        if not 0 <= index <= steps:
            raise ValueError(f"the index is outside [0, {steps}]")
        level, rest = divmod(index * levels, steps)
        return (self.reports[level + (self.threshold < rest)],)

    def fits(self, mechanism: LevelMechanism) -> bool:
        """Whether `draw` can have made it for this mechanism."""
        steps, levels = mechanism.grid
        return (
            0 <= self.threshold < steps
            and 0 <= self.substitute <= steps
            and len(self.reports) == levels + 1
            and all(mechanism.admits((report,)) for report in self.reports)
        )
