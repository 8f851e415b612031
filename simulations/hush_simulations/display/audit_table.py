"""What `hush audit` prints: for each mechanism the claim, what was measured, and by which rule."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import exp, floor, log10

from hush_common.epsilon import at_most_sure, decimal_text
from hush_common.formatting import at_least, exact, fixed, percent_at_most, significant, whole
from hush_common.terminal import Block, Cell, Fact, Facts, Sentence, Styled
from hush_simulations.auditing.audit import Finding, Tested

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
    least = f"{at_least(100 / (1 + exp(-found.bound)), _SHARES)} %"
    bound = f"epsilon ≥ {at_least(found.bound, _PLACES)}"
    yield Fact(
        "measured", f"{bound}: an observer is right in at least {least}, at {_sure(found.confidence)} confidence"
    )
    if one.verdict is not None:
        verdict: Cell = Styled(one.verdict.upper(), "red") if one.is_violation else Styled(one.verdict, "green")
        yield Fact("verdict", verdict)
    label, best = "observer", found.best
    for value, words in one.rule(best):
        yield Fact(label, f"guesses {value} if {words}")
        label = ""
    if not best.guesses:
        yield Fact(label, "no report favours either input")
        return
    yield Fact("", f"{_guesses(best)}, on {whole(found.samples)} reports")
    for test in found.tests:
        if test is not best:
            result = f"{_guesses(test)}, epsilon ≥ {at_least(test.bound, _PLACES)}" if test.guesses else "no guess"
            yield Fact("other rule", f"{test.kind}: {result}")
    yield Fact(
        "limit", f"{whole(one.samples)} reports of each value can show epsilon {at_least(one.highest_bound, 2)} at most"
    )


def _guesses(test: Tested) -> str:
    share = fixed(Fraction(test.right, test.guesses), _SHARES, scale=100)
    return f"{whole(test.right)} of {whole(test.guesses)} guesses were right ({share} %)"


def _sure(confidence: float) -> str:
    """A confidence in per cent, rounded down: of several audits it is a fraction with no end."""
    places = max(_SHARES, 1 - floor(log10(100 * (1 - confidence))))
    return f"{exact(float(at_least(Decimal(repr(confidence)) * 100, places)))} %"
