"""The table at the end of a simulation: what was true, what was estimated, and what it cost."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS
from hush_common.epsilon import decimal_text
from hush_common.figures import exact, fixed, whole
from hush_simulations.display.number_format import NumberFormat, say
from hush_simulations.display.parts_table import parts_table, rounds_of_parts, verdicts
from hush_simulations.results.run import Round, Run
from hush_simulations.scenarios.population import Observed

__all__ = ["print_table"]

_NARROWEST = 100  # columns in a pipe, where nobody says how wide it is
_WIDE = 80  # below, remarks stand under their values


def print_table(run: Run, console: Console | None = None) -> None:
    """Print a simulation.

    Args:
        run: the simulation.
        console: where to print; by default standard output.
    """
    out = console or Console(highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, _NARROWEST)
    out.print()
    say(out, heading(run), "bold")
    out.print()
    if len(run.rounds) > 1:
        out.print(rounds_of_parts(run) if run.score.parts else _rounds(run))
        out.print(_grid(_costs(run), out.width))
    elif run.score.parts:
        out.print(Padding(parts_table(run, out.width), (0, 0, 0, 1)))
        out.print(_grid(chain(verdicts(run), _costs(run)), out.width))
    else:
        out.print(_grid(chain(_answer(run), _costs(run)), out.width))
    out.print()


def heading(run: Run) -> str:
    """One line: the question, who was asked, and how."""
    task = run.task
    ways = "in memory" if run.experiment.engine == "memory" else f"over MQTT ({run.broker})"
    devices = "1 device" if run.clients == 1 else f"{whole(run.clients)} devices"
    *others, last = [decimal_text(epsilon) for epsilon in task.offers or (task.epsilon,)]
    epsilon = f"{', '.join(others)} or {last}" if others else last
    return f"{task.title or task.id}: {devices}, {task.mechanism}, epsilon {epsilon}, {ways}"


def _grid(rows: Iterable[tuple[str, str, str]], width: int) -> Table:
    """Label, value and remark of each row; where that is too wide, the remark below the value."""
    wide = width >= _WIDE
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(no_wrap=True, min_width=30)
    for _ in range(1 + wide):
        grid.add_column()
    for label, value, remark in rows:
        beside = [Text(value), _coloured(remark)] if wide else [_below(Text(value), _coloured(remark))]
        grid.add_row(f"  {label}", *beside)
    return grid


def _below(value: Text, remark: Text) -> Text:
    return Text("\n").join(part for part in (value, remark) if part)


def _answer(run: Run) -> Iterator[tuple[str, str, str]]:
    result, truths = run.result, run.truth
    wording = NumberFormat.of(result)
    what = "share of yes" if wording.unit == "%" else "mean"
    for target, mean in truths.items():
        yield f"true {what}, {target}", wording.value(mean), ""
    if result.mean is None:
        yield "estimate", "none: it failed" if result.n else "none: no report was counted", _words(result.failures)
        return
    yield "estimate", wording.value(result.mean), _error(result.mean, truths, wording)
    if pooled := result.estimate.pooled:
        yield "estimate, population", wording.value(pooled.mean), "pooled"
    confidence = f"{exact(result.confidence, scale=100)} %"
    for target, interval in result.intervals.items():
        yield f"{confidence} {_what(target)}", wording.interval(*interval), _verdict(run.covered.get(target))
    if result.failures:
        yield "could not be made", _words(result.failures), ""


def _words(failures: Mapping[str, str]) -> str:
    return ", ".join(f"{target} ({reason})" for target, reason in failures.items())


def _what(target: str) -> str:
    """The kind of an interval, by its name in a result."""
    if not target.startswith(ANYTIME):
        return f"interval, {target}"
    return f"confidence sequence{target.removeprefix(ANYTIME).replace('_', ', ')}"


def _error(mean: float, truths: Mapping[str, float], wording: NumberFormat) -> str:
    if REPORTERS not in truths:
        return ""
    side = "high" if mean > truths[REPORTERS] else "low"
    return f"{wording.distance(mean, truths[REPORTERS])} too {side}"


def _verdict(is_covered: bool | None) -> str:
    return {True: "covers the truth", False: "misses the truth", None: "truth unknown"}[is_covered]


def _coloured(remark: str) -> Text:
    style = {"covers the truth": "green", "misses the truth": "red"}.get(remark, "")
    return Text(remark, style=style)


def _rounds(run: Run) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    for name in ("round", "true mean", "estimate", f"{confidence} reporters", f"{confidence} population", "accepted"):
        table.add_column(name, justify="right")
    wording = NumberFormat.of(run.result)
    for done in run.rounds:
        table.add_row(*_round_cells(done, wording))
    return table


def _round_cells(done: Round, wording: NumberFormat) -> Iterator[RenderableType]:
    result, truths = done.result, done.score.truth
    yield str(result.round)
    yield wording.value(truths[REPORTERS]) if REPORTERS in truths else ""
    yield "none" if result.mean is None else wording.value(result.mean)
    for target in (REPORTERS, POPULATION):
        interval = result.intervals.get(target)
        style = "red" if done.score.covered.get(target) is False else ""
        missed = " (misses)" if style else ""
        yield Text(wording.interval(*interval) + missed if interval else "", style=style)
    yield whole(result.n)


def _costs(run: Run) -> Iterator[tuple[str, str, str]]:
    refused = run.result.refused
    yield (
        "reports",
        f"{whole(run.accepted)} accepted, {whole(sum(refused.values()))} refused",
        f"{whole(run.lost)} lost",
    )
    yield from _rows_of_data(run)
    for reason, count in refused.items():
        yield "", f"{whole(count)} {reason.value}", reason.meaning
    for declined, count in run.declined.items():
        yield "", f"{whole(count)} not sent", f"the device declined: {declined}"
    for epsilon, count in run.chosen.items():
        yield f"chose epsilon {decimal_text(epsilon)}", f"{whole(count)} devices", ""
    most, rounds = "at most " if run.chosen else "", len(run.rounds)
    spent = most + decimal_text(run.epsilon_spent)
    yield "epsilon spent by each device", spent, f"over {rounds} rounds" if rounds > 1 else ""
    yield "values clamped to the bounds", whole(run.clamped), "not included in the intervals" if run.clamped else ""
    yield "time", f"{fixed(run.elapsed_s, 2)} s", f"{whole(run.reports_per_s)} reports/s"
    yield "noise", run.noise, ""
    if run.experiment.seed is not None:
        yield "seed of the population", str(run.experiment.seed), ""


def _rows_of_data(run: Run) -> Iterator[tuple[str, str, str]]:
    """What became of somebody's own rows, where that is more than a device each."""
    data = run.experiment.scenario.population
    if not isinstance(data, Observed):
        return
    if data.resampled:
        yield "rows of the data", whole(data.rows), f"{whole(run.clients)} devices drawn from them, with replacement"
    if data.treatment is not None:
        became = "left out" if data.treatment == "drop" else "their devices answer without one"
        yield "rows without a value", f"{whole(data.missing)} of {whole(data.rows)}", became
