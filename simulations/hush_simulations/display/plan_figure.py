"""Pictures of plans, of what is feasible, and of audits."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from hush_aggregator.estimate import POPULATION
from hush_common.epsilon import decimal_text
from hush_common.formatting import significant, whole
from hush_common.terminal import wrapped
from hush_simulations.auditing.audit import Audit
from hush_simulations.display.clamping import clamping_error
from hush_simulations.display.plan_table import (
    amount_in_words,
    feasibility_asked,
    goal_in_words,
    half_width_in_words,
    heading_of,
    is_share,
    unit_of,
)
from hush_simulations.display.style import Palette, Picture, canvas, finish, logarithmic, styled
from hush_simulations.planning.feasibility import Feasibility
from hush_simulations.planning.plan import TARGETS, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTERS = 46  # of a heading
_EDGE = 0.02  # left edge of headings, as a share of the width
_HYPHEN = re.compile(r"(?<!\S)-(?=\d)")  # of a number below zero


def _drawn(
    title: str, about: str, height: float, palette: Palette, draw: "Callable[[Axes], None]", *, columns: int = 0
) -> "Figure":
    """Return a figure with one panel below its title, with a legend of so many columns."""
    heading = "\n".join(wrapped(_HYPHEN.sub("\N{MINUS SIGN}", title), _LETTERS))
    with styled(palette):
        figure = canvas(height + 0.25 * heading.count("\n"))
        axes = figure.subplots()
        draw(axes)
        figure.suptitle(heading, x=_EDGE, ha="left", fontsize=14, fontweight="bold")
        subtitle = axes.set_title(about, fontsize=10.5, fontweight="normal", color=palette.faint)
        if columns:
            figure.legend(loc="outside lower left", ncols=columns, fontsize=10.5)
        finish(figure)
        edge = figure.transFigure.transform((_EDGE, 0))
        subtitle.set_x(axes.transAxes.inverted().transform(edge)[0])
    return figure


def picture_of_feasibility(found: Feasibility) -> Picture:
    """Return the half-width of the interval at each epsilon; or, without people, how many reach the goal."""
    title = feasibility_asked(found)
    what = "Half-width of the interval for the population" if found.people is not None else "People who reach the goal"
    return Picture(
        title,
        f"{what} against epsilon, locally and with a trusted collector.",
        lambda palette: _feasible(found, title, palette),
    )


def _feasible(found: Feasibility, title: str, palette: Palette) -> "Figure":
    epsilons = [float(line.epsilon) for line in found.lines]
    scale = 100 if found.domain.is_share or is_share(found.domain.numbers[0]) else 1

    def draw(axes: "Axes") -> None:
        if found.people is None:
            known = [(e, line.people[POPULATION]) for e, line in zip(epsilons, found.lines, strict=True) if line.people]
            axes.plot(*zip(*known, strict=True), "o-", color=palette.noisy, label=f"people for {goal_in_words(found)}")
            axes.set_ylabel("people")
        else:
            local = [line.half_widths[POPULATION] * scale for line in found.lines]
            trusted = [line.trusted[POPULATION] * scale for line in found.lines]
            axes.plot(epsilons, local, "o-", color=palette.noisy, label="hush, each device adds its noise")
            axes.plot(epsilons, trusted, "s--", color=palette.true, label="a trusted collector adds the noise")
            if found.room > 0:
                axes.axhline(found.room * scale, color=palette.faint, ls=":", label=_wanted(found))
            else:
                axes.plot([], [], color=palette.faint, ls=":", label=_wanted(found))
            axes.set_ylabel(f"half-width, {unit_of(found.domain)}".rstrip(", "))
        axes.set_xlabel("epsilon")
        logarithmic(axes, "xy")
        axes.set_xticks(epsilons, [decimal_text(line.epsilon) for line in found.lines])
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)

    what = f"Population, {half_width_in_words(found)}" if found.people is not None else "Population"
    if found.data is not None and found.data.clamping is not None:
        what += f"; the bounds alone make it {clamping_error(found.data.clamping)}"
    return _drawn(title, what, 4.4, palette, draw, columns=1)


def _wanted(found: Feasibility) -> str:
    """Return what the line of the goal is: what the bounds leave of it."""
    if found.room <= 0:
        return f"wanted: {goal_in_words(found)}, which the bounds alone miss"
    return f"wanted: {goal_in_words(found)}" + ("" if found.room == found.goal else ", less what the bounds take")


def picture_of_plan(plan: Plan) -> Picture:
    """Return a bar for each mechanism and reference: what it takes for the population."""
    title = heading_of(plan.question)
    return Picture(
        title, "A bar for each mechanism, and for a trusted collector.", lambda palette: _plan(plan, title, palette)
    )


def _plan(plan: Plan, title: str, palette: Palette) -> "Figure":
    lines = [*plan.mechanisms, *plan.for_comparison, plan.trusted_collector]
    target = next(
        (one for one in reversed(TARGETS) if any(one in line.amounts for line in plan.mechanisms)), POPULATION
    )
    colours = [palette.noisy] * len(plan.mechanisms) + [palette.faint] * len(plan.for_comparison) + [palette.true]
    rows = [
        (
            line.mechanism,
            float(line.amounts[target]),
            amount_in_words(plan.question.domain, line.amounts[target]),
            colour,
        )
        for line, colour in zip(lines, colours, strict=True)
        if target in line.amounts
    ]
    unknown = {"people": "people", "epsilon": "epsilon", "error": "half-width"}[plan.question.unknown]
    return _drawn(title, f"{unknown} for the {target}", 1.6 + 0.45 * len(rows), palette, lambda axes: _bars(axes, rows))


def _bars(axes: "Axes", rows: Sequence[tuple[str, float, str, str]]) -> None:
    most = max((amount for _, amount, _, _ in rows), default=1.0)
    for place, (_, amount, words, colour) in enumerate(rows):
        axes.barh(place, amount, color=colour, height=0.6)
        axes.text(amount + most * 0.02, place, words, va="center", fontsize=10)
    axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name, *_ in rows])
    axes.set_xlim(0, most * 1.45)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.invert_yaxis()


def picture_of_audit(audit: Audit) -> Picture:
    """Return the epsilon that each mechanism claims, and the bound that its reports show."""
    broken, claims = len(audit.violations), sum(one.declared is not None for one in audit.findings)
    if broken:
        title = f"{broken} of {claims} claims {'is' if broken == 1 else 'are'} exceeded"
    else:
        title = "No claimed epsilon is exceeded" if claims else "Epsilon that the reports show"
    shows = "For each mechanism a lower bound of the epsilon of its reports, next to the claimed epsilon."
    return Picture(title, shows, lambda palette: _audit(audit, title, palette))


def _audit(audit: Audit, title: str, palette: Palette) -> "Figure":
    def draw(axes: "Axes") -> None:
        for place, one in enumerate(audit.findings):
            colour = palette.fourth if one.is_violation else palette.noisy
            bound = max(one.measured.bound, 0.0)
            axes.barh(place, bound, color=colour, height=0.55, label="" if place else "measured, at least")
            if one.declared is not None:
                claimed = float(one.declared)
                axes.plot([claimed] * 2, [place - 0.4, place + 0.4], color=palette.true, lw=2.5)
        if any(one.declared is not None for one in audit.findings):
            axes.plot([], [], "|", color=palette.true, ms=14, mew=2.5, label="claimed")
        axes.set_yticks(
            range(len(audit.findings)), [one.name.partition(",")[0].replace("_", " ") for one in audit.findings]
        )
        axes.set_xlabel("epsilon of one report")
        axes.set_xlim(left=0)
        axes.invert_yaxis()

    samples = whole(audit.findings[0].samples) if len({one.samples for one in audit.findings}) == 1 else "many"
    about = f"{samples} reports of each value, {significant(Fraction(repr(audit.confidence)) * 100, 4)} % confidence"
    return _drawn(title, about, 1.9 + 0.42 * len(audit.findings), palette, draw, columns=2)
