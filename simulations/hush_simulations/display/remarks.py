"""Remarks below the table of a simulation: what a name or an odd figure means, and what would have been better."""

from collections.abc import Iterator

from hush_common.domain import BitDomain, CategoryDomain, NumberDomain
from hush_common.formatting import exact, ratio, whole
from hush_simulations.display.parts import parts_of
from hush_simulations.results.run import PooledRounds, Run, auto_mechanism

_NAMED = 3  # estimates outside the bounds, up to which each is named
_VISIBLE = 1.005  # times as many people, from which on it is told


def remarks(run: Run, together: PooledRounds | None) -> Iterator[str]:
    """Sentences, in their order.

    Args:
        run: the simulation.
        together: its rounds as one estimate, if that is shown.
    """
    if run.stopped:
        asked = whole(run.clients * run.task.rounds)
        yield (
            f"Stopped with {whole(run.published)} of {asked} answers sent: all of the above is about those. Intervals "
            f"are for an end that was fixed before; if what you saw made you stop, rely on the intervals at any time."
        )
    yield from _legend(run, together)
    yield from _outside(run)
    yield from _choice_of_epsilon(run)
    yield from _best(run)


def _legend(run: Run, together: PooledRounds | None) -> Iterator[str]:
    if run.score.parts or len(run.rounds) > 1:
        yield (
            "reporters: the devices that answered. population: those from which they were drawn. "
            "off: the estimate less the truth. covers: whether the interval holds the truth."
        )
    if len(run.rounds) == 1:
        return
    if not run.score.parts:
        yield "at any time: holds however often you look while reports arrive; the others are for the end of a round."
    if together:
        yield (
            "All rounds together: the noise of every report is new, so that their mean has less of it. The people are "
            "the same: the interval for the population allows for as many as answered, not for as many as there are "
            "reports, and covers at least as often as it says."
        )
    elif run.task.repeat == "sticky":
        yield "The rounds repeat the answers of the first one, noise and all: to average them gains nothing."


def _outside(run: Run) -> Iterator[str]:
    """Why an estimate that nobody can have is there."""
    domain = run.task.domain
    if run.score.parts:
        names = [part.name for part in parts_of(run.last) if part.is_outside]
        if names:
            legal = "0 to 100 %" if isinstance(domain, CategoryDomain) else "the bounds"
            which = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} of {len(run.score.parts)}"
            yield (
                f"An estimate outside {legal} ({which}) is deliberate: estimates are unbiased and never clipped, "
                f"intervals are."
            )
        return
    mean = run.result.mean
    lower, upper = (domain.lower, domain.upper) if isinstance(domain, NumberDomain) else (0.0, 1.0)
    if mean is None or lower <= mean <= upper:
        return
    scale, unit = (100, "%") if isinstance(domain, BitDomain) else (1, run.task.unit)
    legal = f"{exact(lower, scale=scale)} to {exact(upper, scale=scale)} {unit}".rstrip()
    yield f"An estimate outside {legal} is deliberate: it is unbiased and never clipped, the intervals are."


def _choice_of_epsilon(run: Run) -> Iterator[str]:
    pooled = run.result.estimate.pooled
    if pooled and len(run.rounds) == 1:
        yield (
            "Two estimates for two questions: take that for the reporters to speak of those who answered; take that "
            f"for the population, which has the least variance, to speak of all, if {pooled.assumes}."
        )


def _best(run: Run) -> Iterator[str]:
    """Which mechanism `auto` takes, and what it would have saved."""
    found = auto_mechanism(run.task) if run.result.n else None
    if found is None:
        return
    own, (name, times) = run.task.mechanism, found
    if own == name:
        yield f"{own} is what auto takes here."
    elif times <= _VISIBLE:
        yield f"--mechanism auto takes {name}, which needs as many devices here."
    else:
        yield (
            f"--mechanism auto takes {name}. For the same standard error in the worst case {own} needs {ratio(times)} "
            f"times as many devices, as hush plan --rms computes."
        )
