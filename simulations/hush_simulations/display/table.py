"""The table at the end of a simulation: what was true, what was estimated, and what it cost."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hush_aggregator.estimate import ANYTIME
from hush_common.epsilon import decimal_text
from hush_common.figures import exact, fixed, whole
from hush_common.refusal import Refusal
from hush_simulations.display.number_format import NumberFormat, say
from hush_simulations.display.parts_table import kind_of, parts_table, rounds_of_parts, verdicts
from hush_simulations.engines.experiment import Outcome

__all__ = ["print_table"]

_NARROWEST = 100  # columns in a pipe, where nobody says how wide it is
_WIDE = 80  # below, remarks stand under their values


def print_table(found: Mapping[str, Any], outcome: Outcome, console: Console | None = None) -> None:
    """Print a simulation to standard output.

    Args:
        found: the object of `hush_simulations.results.result`.
        outcome: the same simulation.
        console: where to print; by default standard output.
    """
    out = console or Console(highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, _NARROWEST)
    out.print()
    say(out, heading(found, outcome), "bold")
    out.print()
    kind = kind_of(found)
    if "rounds" in found:
        out.print(_rounds(found) if kind is None else rounds_of_parts(found["rounds"], kind))
        out.print(_grid(_costs(found), out.width))
    elif kind is not None:
        out.print(Padding(parts_table(found, kind, out.width), (0, 0, 0, 1)))
        out.print(_grid(chain(verdicts(found, kind), _costs(found)), out.width))
    else:
        out.print(_grid(chain(_answer(found), _costs(found)), out.width))
    out.print()


def heading(found: Mapping[str, Any], outcome: Outcome) -> str:
    """One line: the question, who was asked, and how."""
    task = outcome.task
    ways = "in memory" if found["engine"] == "memory" else f"over MQTT ({found['broker']})"
    devices = "1 device" if found["clients"] == 1 else f"{whole(found['clients'])} devices"
    *others, last = [decimal_text(epsilon) for epsilon in task.offers] or [found["result"]["epsilon"]]
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


def _answer(found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    result, truths = found["result"], found["truth"]
    wording = NumberFormat.of(result)
    what = "share of yes" if wording.unit == "%" else "mean"
    for target, mean in truths.items():
        yield f"true {what}, {target}", wording.value(mean), ""
    if "mean" not in result:
        yield "estimate", "none: it failed" if result["n"] else "none: no report was counted", _failures(result)
        return
    yield "estimate", wording.value(result["mean"]), _error(result, truths, wording)
    if pooled := result.get("pooled"):
        yield "estimate, population", wording.value(pooled["mean"]), "pooled"
    confidence = f"{exact(result['confidence'], scale=100)} %"
    for target, interval in result.get("intervals", {}).items():
        yield f"{confidence} {_what(target)}", wording.interval(*interval), _verdict(found["covered"].get(target))
    if "failures" in result:
        yield "could not be made", _failures(result), ""


def _failures(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{target} ({reason})" for target, reason in result.get("failures", {}).items())


def _what(target: str) -> str:
    """The kind of an interval, by its name in a result."""
    if not target.startswith(ANYTIME):
        return f"interval, {target}"
    return f"band, watched{target.removeprefix(ANYTIME).replace('_', ', ') or ' live'}"


def _error(result: Mapping[str, Any], truths: Mapping[str, float], wording: NumberFormat) -> str:
    if "reporters" not in truths:
        return ""
    side = "high" if result["mean"] > truths["reporters"] else "low"
    return f"{wording.distance(result['mean'], truths['reporters'])} too {side}"


def _verdict(is_covered: bool | None) -> str:
    return {True: "covers the truth", False: "misses the truth", None: "truth unknown"}[is_covered]


def _coloured(remark: str) -> Text:
    style = {"covers the truth": "green", "misses the truth": "red"}.get(remark, "")
    return Text(remark, style=style)


def _rounds(found: Mapping[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    confidence = f"{exact(found['result']['confidence'], scale=100)} %"
    for name in ("round", "true mean", "estimate", f"{confidence} reporters", f"{confidence} population", "accepted"):
        table.add_column(name, justify="right")
    wording = NumberFormat.of(found["result"])
    for done in found["rounds"]:
        table.add_row(*_round_cells(done, wording))
    return table


def _round_cells(done: Mapping[str, Any], wording: NumberFormat) -> Iterator[RenderableType]:
    result = done["result"]
    yield str(result["round"])
    yield wording.value(done["truth"]["reporters"]) if "reporters" in done["truth"] else ""
    yield wording.value(result["mean"]) if "mean" in result else "none"
    for target in ("reporters", "population"):
        interval = result.get("intervals", {}).get(target)
        style = "red" if done["covered"].get(target) is False else ""
        missed = " (misses)" if style else ""
        yield Text(wording.interval(*interval) + missed if interval else "", style=style)
    yield whole(result["n"])


def _costs(found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    done = found.get("rounds", (found,))
    accepted, refused = sum(one["result"]["n"] for one in done), found["result"]["refused"]
    yield (
        "reports",
        f"{whole(accepted)} accepted, {whole(sum(refused.values()))} refused",
        f"{whole(found['lost'])} lost",
    )
    for reason, count in refused.items():
        yield "", f"{whole(count)} {reason}", Refusal(reason).meaning
    for reason, count in found["declined"].items():
        yield "", f"{whole(count)} not sent", f"the device declined: {reason}"
    rounds = len(found.get("rounds", ()))
    for epsilon, count in found.get("chosen", {}).items():
        yield f"chose epsilon {epsilon}", f"{whole(count)} devices", ""
    most = "at most " if "chosen" in found else ""
    yield "epsilon spent by each device", most + found["epsilon_spent"], f"over {rounds} rounds" if rounds else ""
    clamped = found["clamped"]
    yield "values clamped to the bounds", whole(clamped), "which no error bar knows of" if clamped else ""
    yield "time", f"{fixed(found['elapsed_s'], 2)} s", f"{whole(found['reports_per_s'])} reports/s"
    yield "noise", found["noise"], ""
    if "seed" in found:
        yield "seed of the population", str(found["seed"]), ""
