"""What a plan found for each mechanism, as bars in text."""

from collections.abc import Iterator

from hush_aggregator.charts import Bar, Bars
from hush_simulations.display.plan_table import amount_in_words
from hush_simulations.planning.costs import TARGETS
from hush_simulations.planning.plan import Plan

__all__ = ["charts_of_plan"]

_TITLES = {"people": "People", "epsilon": "Epsilon", "error": "Error"}


def charts_of_plan(plan: Plan, *, signs: bool) -> Iterator[Bars]:
    """What each mechanism needs or gives, a chart for each target; shorter is better.

    Args:
        plan: what was found.
        signs: whether the terminal shows more than ASCII.
    """
    domain = plan.question.domain
    lines = [*plan.mechanisms, *plan.for_comparison]
    for target in TARGETS:
        found = [(line.mechanism, line.amounts[target]) for line in lines if target in line.amounts]
        if found:
            bars = [Bar(name, float(amount), amount_in_words(domain, amount)) for name, amount in found]
            yield Bars(f"{_TITLES[plan.question.unknown]} with each mechanism, for the {target}", bars, signs)
