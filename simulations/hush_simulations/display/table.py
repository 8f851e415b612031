"""What a simulation prints at its end: what was true, what was estimated, and what it cost."""

from collections.abc import Iterator, Mapping

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS
from hush_common.domain import BitDomain, NumberDomain
from hush_common.epsilon import decimal_text
from hush_common.formatting import exact, fixed, whole
from hush_common.terminal import Block, Cell, Column, Fact, Facts, Row, Sentence, Styled, Table
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.parts_table import judged_columns, judged_rows, parts_table, rounds_of_parts, verdicts
from hush_simulations.display.remarks import remarks
from hush_simulations.engines.experiment import ABSENT
from hush_simulations.results.rounds import Round, Together
from hush_simulations.results.run import Run
from hush_simulations.scenarios.population import Observed

__all__ = ["blocks", "heading"]

_BULK = {"tally": "in bulk, the tally drawn at once", "devices": "in bulk, one by one"}
_LABELS = len("epsilon spent by each device")
"""Columns of the labels of all lists, so that they stand in line where they can."""
_BANDS = {
    REPORTERS: REPORTERS,
    POPULATION: POPULATION,
    ENROLLED: ENROLLED,
    ANYTIME: "sequence",
    ANYTIME_POPULATION: "sequence, population",
}

_AWAY = "the device was away for a round, or never answers"


def blocks(run: Run) -> Iterator[Block]:
    """All of it, in its order."""
    empty = Sentence("")
    yield empty
    yield Sentence(heading(run), "bold")
    yield empty
    together = run.together if len(run.rounds) > 1 else None
    if len(run.rounds) > 1:
        yield rounds_of_parts(run) if run.score.parts else _rounds(run, together)
        if together and together.score.parts:
            yield empty
            yield Sentence(f"All {whole(together.rounds)} rounds together:")
            yield empty
            yield parts_table(together)
    elif run.score.parts:
        yield parts_table(run.last)
        yield empty
        yield Facts([*verdicts(run)], least=_LABELS)
    else:
        yield Facts([*_answer(run)], least=_LABELS)
    yield empty
    yield Facts([*_costs(run)], least=_LABELS)
    yield empty
    yield from (Sentence(words, hanging=2) for words in remarks(run, together))
    yield empty


def heading(run: Run) -> str:
    """One line: the question, who was asked, and how."""
    task = run.task
    ways = {"memory": "in memory", "bulk": _BULK.get(run.drawing or "")}.get(run.experiment.engine)
    ways = ways or f"over MQTT ({run.broker})"
    devices = "1 device" if run.clients == 1 else f"{whole(run.clients)} devices"
    *others, last = [decimal_text(epsilon) for epsilon in task.offers or (task.epsilon,)]
    epsilon = f"{', '.join(others)} or {last}" if others else last
    return f"{task.title or task.id}: {devices}, {task.mechanism}, epsilon {epsilon}, {ways}"


def _answer(run: Run) -> Iterator[Fact]:
    result, truths = run.result, run.truth
    wording = NumberFormat.of(result)
    what = "share of yes" if wording.unit == "%" else "mean"
    for target, mean in truths.items():
        yield Fact(f"true {what}, {target}", wording.value(mean))
    if result.mean is None:
        yield Fact(
            "estimate", "none: it failed" if result.n else "none: no report was counted", _words(result.failures)
        )
        return
    pooled = result.estimate.pooled
    name = f"estimate, {REPORTERS}" if pooled else "estimate"
    yield Fact(name, wording.value(result.mean), _error(result.mean, truths.get(REPORTERS), wording))
    if pooled:
        yield Fact(
            f"estimate, {POPULATION}", wording.value(pooled.mean), _error(pooled.mean, truths.get(POPULATION), wording)
        )
    confidence = f"{exact(result.confidence, scale=100)} %"
    for target, interval in result.intervals.items():
        remark = _verdict(run.covered.get(target), interval == _bounds(run))
        yield Fact(f"{confidence} {_what(target)}", wording.interval(*interval), remark)
    if result.failures:
        yield Fact("could not be made", _words(result.failures))


def _bounds(run: Run) -> tuple[float, float] | None:
    domain = run.task.domain
    if isinstance(domain, BitDomain):
        return (0.0, 1.0)
    return (domain.lower, domain.upper) if isinstance(domain, NumberDomain) else None


def _words(failures: Mapping[str, str]) -> str:
    return ", ".join(f"{target} ({reason})" for target, reason in failures.items())


def _what(target: str) -> str:
    """The kind of an interval, by its name in a result."""
    if not target.startswith(ANYTIME):
        return f"interval, {target}"
    return f"confidence sequence{target.removeprefix(ANYTIME).replace('_', ', ')}"


def _error(mean: float, known: float | None, wording: NumberFormat) -> str:
    if known is None:
        return ""
    return f"{wording.distance(mean, known)} too {'high' if mean > known else 'low'}"


def _verdict(is_covered: bool | None, is_everything: bool) -> Cell:
    if is_everything:
        return "the whole range"
    if is_covered is None:
        return "truth unknown"
    return Styled("covers the truth", "green") if is_covered else Styled("misses the truth", "red")


def _rounds(run: Run, together: Together | None) -> Table:
    """Each round with a line for each interval, and all of them as one."""
    wording = NumberFormat.of(run.result)
    unit = f" ({wording.unit})" if wording.unit else ""
    columns = [
        Column("round", right=True, named=True),
        Column("reports", right=True),
        Column("estimate" + unit, right=True),
        *judged_columns(run.result.confidence),
    ]
    rows = [row for done in run.rounds for row in _round(str(done.result.round), done, wording)]
    if together:
        rows += [Row(), *_round("all", together, wording)]
    return Table(columns, rows, grouped=3)


def _round(name: str, done: Round | Together, wording: NumberFormat) -> Iterator[Row]:
    result = done.result
    estimate = "none" if result.mean is None else wording.number(result.mean)
    head = (name, whole(result.n), estimate)
    rows = list(judged_rows(head, _BANDS, done.score, result.intervals, wording))
    yield from rows or [Row([*head, "", "", "", "", ""])]


def _costs(run: Run) -> Iterator[Fact]:
    refused = run.result.refused
    counted = f"{whole(run.accepted)} accepted, {whole(sum(refused.values()))} refused"
    yield Fact("reports", counted, f"{whole(run.lost)} lost")
    yield from _rows_of_data(run)
    for reason, count in refused.items():
        yield Fact("", f"{whole(count)} {reason.value}", reason.meaning)
    for declined, count in run.declined.items():
        why = _AWAY if declined == ABSENT else f"the device declined: {declined}"
        yield Fact("", f"{whole(count)} not sent", why)
    for epsilon, count in run.chosen.items():
        yield Fact(f"chose epsilon {decimal_text(epsilon)}", f"{whole(count)} {'device' if count == 1 else 'devices'}")
    most, rounds = "at most " if run.chosen else "", len(run.rounds)
    spent = most + decimal_text(run.epsilon_spent)
    yield Fact("epsilon spent by each device", spent, f"over {whole(rounds)} rounds" if rounds > 1 else "")
    clamped = "not included in the intervals" if run.clamped else ""
    yield Fact("values clamped to the bounds", whole(run.clamped), clamped)
    yield Fact("time", f"{fixed(run.elapsed_s, 2)} s", f"{whole(run.reports_per_s)} reports/s")
    yield Fact("noise", run.noise)
    if run.experiment.seed is not None:
        yield Fact("seed of the population", str(run.experiment.seed))


def _rows_of_data(run: Run) -> Iterator[Fact]:
    """What became of somebody's own rows, where that is more than a device each."""
    data = run.experiment.scenario.population
    if not isinstance(data, Observed):
        return
    if data.resampled:
        drawn = f"{whole(run.clients)} devices drawn from them, with replacement"
        yield Fact("rows of the data", whole(data.rows), drawn)
    if data.treatment is not None:
        became = "left out" if data.treatment == "drop" else "their devices answer without one"
        yield Fact("rows without a value", f"{whole(data.missing)} of {whole(data.rows)}", became)
