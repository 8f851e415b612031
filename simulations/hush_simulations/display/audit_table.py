"""What `hush audit` prints: for each mechanism the claim, what was measured, and by which rule."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import exp

from hush_common.epsilon import at_most_sure, decimal_text
from hush_common.figures import at_least, exact, fixed, percent_at_most, significant, whole
from hush_common.terminal.facts import Fact, Facts
from hush_common.terminal.screen import Block
from hush_common.terminal.words import Cell, Sentence, Styled
from hush_simulations.auditing.finding import Finding

__all__ = ["blocks"]

_LABELS = len("measured")
_PLACES = 4  # of an epsilon, rounded down
_SHARES = 2


def blocks(findings: Sequence[Finding], confidence: float) -> Iterator[Block]:
    """Each finding, and what a verdict means.

    Args:
        findings: one at least.
        confidence: of all verdicts together.
    """
    for one in findings:
        yield Sentence(one.name, "bold", indent=0, hanging=2)
        yield Facts([*_facts(one)], least=_LABELS)
        yield Sentence("")
    chance = f"{significant(1 - Decimal(repr(confidence)), 2, scale=100)} %"
    together = " (all verdicts together)" if len(findings) > 1 else ""
    yield Sentence(f"The probability of a false VIOLATION is at most {chance}{together}.", indent=0)
    if any(one.verdict is not None and not one.is_violation for one in findings):
        yield Sentence(
            "Consistent is not a proof: it means that these reports show no more than the claimed epsilon.", indent=0
        )


def _facts(one: Finding) -> Iterator[Fact]:
    found = one.measured
    if one.declared is not None:
        most = percent_at_most(at_most_sure(one.declared))
        yield Fact("claimed", f"epsilon {decimal_text(one.declared)}: no observer is right more often than {most}")
    sure = f"{exact(found.confidence, scale=100)} %"
    least = f"{at_least(100 / (1 + exp(-found.bound)), _SHARES)} %"
    bound = f"epsilon ≥ {at_least(found.bound, _PLACES)}"
    yield Fact("measured", f"{bound}: an observer is right in at least {least}, at {sure} confidence")
    if one.verdict is not None:
        verdict: Cell = Styled(one.verdict.upper(), "red") if one.is_violation else Styled(one.verdict, "green")
        yield Fact("verdict", verdict)
    label = "observer"
    for value, words in one.rule:
        yield Fact(label, f"guesses {value} if {words}")
        label = ""
    if not found.guesses:
        yield Fact(label, "no report favours either input")
        return
    share = fixed(Fraction(found.right, found.guesses), _SHARES, scale=100)
    guesses = f"{whole(found.right)} of {whole(found.guesses)} guesses"
    yield Fact("", f"{guesses} were right ({share} %), on {whole(found.samples)} reports")
    yield Fact(
        "limit", f"{whole(one.samples)} reports of each value can show epsilon {at_least(one.highest_bound, 2)} at most"
    )
