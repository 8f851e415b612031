"""What hush simulate prints: the estimate, its parts, its rounds, remarks, and every figure."""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, PartEstimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.publish.presentation import INTERVALS, NumberFormat, interval_name
from hush_common.epsilon import decimal_text
from hush_common.formatting import exact, fixed, ratio, significant, whole
from hush_common.task import Task
from hush_common.terminal import Cell, Column, Fact, Facts, Renderable, Row, Sentence, Styled, Table
from hush_simulations.display.clamping import clamping_blocks
from hush_simulations.engines.experiment import ABSENT
from hush_simulations.results.run import PooledRounds, Round, Run, Score, auto_mechanism
from hush_simulations.scenarios.population import Observed


class _Part(NamedTuple):
    estimate: PartEstimate
    score: Score
    wording: NumberFormat
    axis: tuple[float, float]


def _parts_of(done: Round | PooledRounds) -> list[_Part]:
    """Return the parts of a round, in the order of the task; without an estimate only the truth."""
    scores, domain = done.score.parts, done.result.task.domain
    return [
        _Part(one, scores[one.name], NumberFormat.of_part(one, is_share=domain.is_share), of.axis)
        for one, of in zip(done.result.parts or map(_unknown, scores), domain.parts, strict=True)
    ]


def _unknown(name: str) -> PartEstimate:
    return PartEstimate(name=name)


_NAMED = 3  # estimates outside the bounds, up to which each is named
_VISIBLE = 1.005  # times as many people, from which on it is told


def remarks(run: Run, together: PooledRounds | None) -> Iterator[str]:
    """Yield sentences below the table of a run; `together` are its rounds as one estimate, if that is shown."""
    if run.stopped:
        asked = whole(run.clients * run.task.rounds)
        yield (
            f"Stopped with {whole(run.published)} of {asked} answers sent: every figure above is about those. Final "
            f"intervals assume an end that was fixed before; if what you saw made you stop, use those at any time."
        )
    if run.drawing is not None:
        yield "In bulk there are no devices and no broker, but the same law of the reports. --engine mqtt has both."
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
            "All rounds together: every report has new noise, so their mean has less of it. The people are the same: "
            "the interval for the population is for the number of people, not of reports, and covers at least as often "
            "as it says."
        )
    elif run.task.repeat == "sticky":
        yield "The rounds repeat the answers of the first one with the same noise: their average is no better."


def _outside(run: Run) -> Iterator[str]:
    domain = run.task.domain
    if run.score.parts:
        names = [part.estimate.name for part in _parts_of(run.last) if _is_outside(part.estimate.mean, *part.axis)]
        if names:
            legal = "0 to 100 %" if domain.is_share else "the bounds"
            which = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} of {len(run.score.parts)}"
            yield (
                f"An estimate outside {legal} ({which}) is not an error: estimates are unbiased and never "
                f"clipped; intervals are clipped."
            )
        return
    lower, upper = domain.parts[0].axis
    if not _is_outside(run.result.mean, lower, upper):
        return
    scale, unit = (100, "%") if domain.is_share else (1, run.task.unit)
    legal = f"{exact(lower, scale=scale)} to {exact(upper, scale=scale)} {unit}".rstrip()
    yield f"An estimate outside {legal} is not an error: it is unbiased and never clipped; the intervals are clipped."


def _is_outside(mean: float | None, lower: float, upper: float) -> bool:
    return mean is not None and not lower <= mean <= upper


def _choice_of_epsilon(run: Run) -> Iterator[str]:
    pooled = run.result.estimate.pooled
    if pooled and len(run.rounds) == 1:
        yield (
            "Two estimates for two questions: the one for the reporters describes those who answered; the one for the "
            f"population, which has the least variance, describes everyone, if {pooled.assumes}."
        )


def _best(run: Run) -> Iterator[str]:
    found = auto_mechanism(run.task) if run.result.n else None
    if found is None:
        return
    own, (name, times) = run.task.mechanism, found
    if own == name:
        yield f"{own} is what auto takes here."
    elif times <= _VISIBLE:
        yield f"--mechanism auto takes {name}, which needs the same number of devices here."
    elif half := _half_width(run):
        wording = NumberFormat.of(run.result)
        less = wording.number(half / sqrt(times))
        yield f"--mechanism auto takes {name}: about ± {less} instead of ± {wording.distance(half, 0.0)}."
    else:
        yield f"--mechanism auto takes {name}, for which 1/{ratio(times)} of the devices give the same error."


def _half_width(run: Run) -> float | None:
    """Return half the width of the reporters' interval, if there is one and no bound cuts it off."""
    if run.score.parts or REPORTERS not in run.result.intervals:
        return None
    (low, high), (lower, upper) = run.result.intervals[REPORTERS], run.task.domain.parts[0].axis
    return (high - low) / 2 if lower < low < high < upper else None


_TARGETS = (REPORTERS, POPULATION)


def judged_columns(confidence: float, unit: str = "") -> list[Column]:
    """Return the columns of an estimate next to the truth: target, truth, error, interval, verdict."""
    interval = f"{exact(confidence, scale=100)} % interval" + (f", {unit}" if unit else "")
    return [
        Column("about"),
        Column("true", right=True),
        Column("off", right=True),
        Column(interval, right=True),
        Column("covers"),
    ]


def judged_rows(
    head: Sequence[Cell], targets: Mapping[str, str], score: Score, intervals: Intervals, wording: NumberFormat
) -> Iterator[Row]:
    """Yield a row for each interval or truth; `head` are the first cells of the first row, `targets` the names."""
    for target, name in targets.items():
        known, interval = score.truth.get(target), intervals.get(target)
        if known is None and interval is None:
            continue
        off, verdict = score.error.get(target), score.covered.get(target)
        cells: list[Cell] = [
            name,
            "" if known is None else wording.number(known),
            "" if off is None else wording.off(off),
            "" if interval is None else wording.bare_interval(*interval),
            "" if interval is None else _verdict_cell(verdict),
        ]
        yield Row([*head, *cells])
        head = [""] * len(head)


def _verdict_cell(verdict: bool | None) -> Cell:
    return "unknown" if verdict is None else Styled("yes", "green") if verdict else Styled("no", "red")


def parts_table(done: Round | PooledRounds) -> Table:
    """Return the parts with their estimates, and a line for each target: truth, error, individual interval."""
    what = "share in %" if done.result.task.domain.is_share else "mean of"
    columns = [Column(what), Column("estimate", right=True), *judged_columns(done.result.confidence)]
    rows: list[Row] = []
    for one, score, wording, _ in _parts_of(done):
        name = f"{one.name} ({one.unit})" if one.unit else one.name
        estimate = "none" if one.mean is None else wording.number(one.mean)
        rows += judged_rows((name, estimate), dict(zip(_TARGETS, _TARGETS, strict=True)), score, one.intervals, wording)
    return Table(columns, rows, grouped=2)


def verdicts(run: Run) -> Iterator[Fact]:
    """Yield how many individual intervals cover, whether the simultaneous ones do, and the anytime ones."""
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    for target, label in (
        *((target, f"{confidence} intervals, {target}") for target in _TARGETS),
        (ANYTIME, f"{confidence} intervals, {interval_name(ANYTIME)}"),
        (ANYTIME_POPULATION, f"{confidence} intervals, {interval_name(ANYTIME_POPULATION)}"),
    ):
        if share := _share(run.score.parts, target):
            yield Fact(label, f"{share} cover", "individual coverage")
    for target in _TARGETS:
        if target in run.score.joint:
            value = "all cover" if run.score.joint[target] else "not all cover"
            yield Fact(f"{confidence} simultaneous, {target}", value, "all of them together")


def rounds_of_parts(run: Run) -> Table:
    """Return one row a round: reports, the largest error, and how many intervals cover."""
    columns = [
        Column("round", right=True, named=True),
        Column("reports", right=True),
        Column("largest error"),
        Column("reporters cover"),
        Column("population cover"),
        Column(f"{interval_name(ANYTIME)} cover"),
    ]
    rows = [
        Row(
            [
                str(done.result.round),
                whole(done.result.n),
                _largest_error(done),
                *(_share(done.score.parts, target) for target in (*_TARGETS, ANYTIME)),
            ]
        )
        for done in run.rounds
    ]
    return Table(columns, rows)


def _share(parts: Mapping[str, Score], target: str) -> str:
    judged = [part.covered[target] for part in parts.values() if target in part.covered]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _largest_error(done: Round) -> str:
    """Return the largest error of shares; of coordinates, whose units differ, the one of most standard errors."""
    known = [
        (score.error[REPORTERS], wording, one) for one, score, wording, _ in _parts_of(done) if REPORTERS in score.error
    ]
    if not known:
        return "none"
    off, wording, one = max(known, key=lambda each: abs(each[0]) / (max(each[2].stderr.values(), default=0.0) or 1))
    unit = "points" if done.result.task.domain.is_share else one.unit
    return f"{wording.off(off)} {unit}".rstrip() + f" ({one.name})"


_BULK = {"tally": "in bulk, the tally drawn at once", "devices": "in bulk, one by one"}
_LABELS = len("epsilon spent by each device")
"""Columns of the labels of all lists, so that they are aligned."""

_AWAY = "the device was away for a round, or never answers"


def run_blocks(run: Run) -> Iterator[Renderable]:
    """Yield everything that hush simulate prints about a run."""
    empty = Sentence("")
    if moved := run.clampings:
        yield empty
        yield from clamping_blocks(moved, with_means=True)
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
    if lesson := " ".join(run.experiment.scenario.about.split()):
        yield empty
        yield Sentence(f"What it teaches. {lesson}")
    yield empty


def heading(run: Run) -> str:
    """Return one line: the question, the devices, the mechanism."""
    task = run.task
    ways = {"memory": "in memory", "bulk": _BULK.get(run.drawing or "")}.get(run.experiment.engine)
    ways = ways or f"over MQTT ({run.broker})"
    devices = "1 device" if run.clients == 1 else f"{whole(run.clients)} devices"
    asked = task.title or task.id
    asked += "" if asked.endswith("?") else ":"
    return f"{asked} {devices}, {task.mechanism}, epsilon {epsilon_in_words(task)}, {ways}"


def epsilon_in_words(task: Task) -> str:
    """Return the epsilon of a task, or those that it offers."""
    *others, last = [decimal_text(epsilon) for epsilon in task.offers or (task.epsilon,)]
    return f"{', '.join(others)} or {last}" if others else last


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
        remark = _verdict(run.covered.get(target), interval == run.task.domain.parts[0].axis)
        name = interval_name(target, result.estimate.methods.get(target, ""))
        yield Fact(f"{confidence} interval, {name}", wording.interval(*interval), remark)
    if result.failures:
        yield Fact("could not be made", _words(result.failures))


def _words(failures: Mapping[str, str]) -> str:
    return ", ".join(f"{target} ({reason})" for target, reason in failures.items())


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


def _rounds(run: Run, together: PooledRounds | None) -> Table:
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


def _round(name: str, done: Round | PooledRounds, wording: NumberFormat) -> Iterator[Row]:
    result = done.result
    estimate = "none" if result.mean is None else wording.number(result.mean)
    head = (name, whole(result.n), estimate)
    names = {target: interval_name(target, result.estimate.methods.get(target, "")) for target in INTERVALS}
    rows = list(judged_rows(head, names, done.score, result.intervals, wording))
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
    data = run.experiment.scenario.population
    if not isinstance(data, Observed):
        return
    if data.resampled:
        drawn = f"{whole(run.clients)} devices drawn from them, with replacement"
        yield Fact("rows of the data", whole(data.rows), drawn)
    if data.treatment is not None:
        became = "left out" if data.treatment == "drop" else "their devices answer without one"
        yield Fact("rows without a value", f"{whole(data.missing)} of {whole(data.rows)}", became)


_DIGITS = 6
_NAMES = ("label", "name")
_PAIRS = 2


def every_figure(document: Mapping[str, object]) -> Iterator[Renderable]:
    """Yield every figure of a document, as `--json` prints it, with its path."""
    yield Sentence("Every figure of --json:", "bold")
    yield Sentence("")
    yield Facts([*_facts("", document)])
    yield Sentence("")


def _facts(place: str, value: object) -> Iterator[Fact]:
    match value:
        case Mapping():
            for name, part in value.items():
                if name not in _NAMES or not place:
                    yield from _facts(f"{place}, {name}" if place else str(name), part)
        case [Mapping(), *_]:
            for number, part in enumerate(value):
                names = [part[name] for name in _NAMES if isinstance(part, Mapping) and name in part]
                yield from _facts(f"{place}, {[*names, number][0]}", part)
        case list() | tuple():
            yield Fact(_place_words(place), _listed(value))
        case _:
            yield Fact(_place_words(place), _text(value))


def _place_words(place: str) -> str:
    return place.replace("_", " ")


def _listed(values: Sequence[object]) -> str:
    return (" to " if len(values) == _PAIRS else ", ").join(map(_text, values)) or "none"


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return whole(value)
        case float():
            return significant(value, _DIGITS)
        case _:
            return str(value)
