"""Results as text, as HTML and as pictures: what `hush_simulations.shown.Shown` shows."""

import base64
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from hush_common.terminal import Cell, Fact, Facts, Renderable, Row, Screen, Sentence, Table, plain, style_of
from hush_simulations.auditing.audit import Audit
from hush_simulations.display.plan_figure import picture_of_audit, picture_of_feasibility, picture_of_plan
from hush_simulations.display.plan_table import audit_blocks, feasibility_blocks, plan_blocks
from hush_simulations.display.run_figure import picture_of
from hush_simulations.display.style import DARK, LIGHT, Picture, png
from hush_simulations.display.sweep import picture_of_sweep, sweep_blocks
from hush_simulations.display.table import run_blocks
from hush_simulations.planning.feasibility import Feasibility
from hush_simulations.planning.plan import Plan
from hush_simulations.results.run import Run
from hush_simulations.shown import Shown
from hush_simulations.sweeps.result import SweepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def blocks_of(result: Shown) -> Iterable[Renderable]:
    """Return what the command prints about a result."""
    match result:
        case Run():
            return run_blocks(result)
        case SweepResult():
            return sweep_blocks(result)
        case Plan():
            return plan_blocks(result)
        case Feasibility():
            return feasibility_blocks(result)
        case Audit():
            return audit_blocks(result.findings, result.confidence)
    raise TypeError(f"nothing shows a {type(result).__name__}")


def picture_of_result(result: Shown, what: str = "") -> Picture:
    """Return the picture of a result. A sweep has several: `what` names one, that of the error if it is empty."""
    match result:
        case Run():
            return picture_of(result)
        case SweepResult():
            return picture_of_sweep(result, what or "error")
        case Plan():
            return picture_of_plan(result)
        case Feasibility():
            return picture_of_feasibility(result)
        case Audit():
            return picture_of_audit(result)
    raise TypeError(f"nothing draws a {type(result).__name__}")


def figure_of(result: Shown, what: str = "", *, dark: bool = False) -> "Figure":
    return picture_of_result(result, what).draw(DARK if dark else LIGHT)


def text_of(result: Shown) -> str:
    """Return what the command prints, without colours, as wide as standard output is."""
    screen = replace(Screen.of(sys.stdout), painted=False)
    lines = [line for block in blocks_of(result) for line in block.lines(screen)]
    return "\n".join(lines).strip("\n")


def html_of(result: Shown) -> str:
    """Return the tables of a result and its picture, as HTML that needs no style sheet and loads nothing."""
    picture = picture_of_result(result)
    data = base64.b64encode(png(picture.draw(LIGHT), picture.title, picture.shows)).decode("ascii")
    described = escape(f"{picture.title}. {picture.shows}")
    image = f'<img src="data:image/png;base64,{data}" alt="{described}" style="width:100%;max-width:40em">'
    return f'<div style="max-width:60em">{"".join(map(_html, blocks_of(result)))}{image}</div>'


_CELL = "padding:.1em .8em .1em 0;border:0;background:none;vertical-align:top"
_STYLES = {"bold": "font-weight:bold", "dim": "opacity:.7", "red": "color:#d33", "green": "color:#2a8a3a", "": ""}


def _html(block: Renderable) -> str:
    match block:
        case Sentence():
            return f'<p style="margin:.4em 0;{_STYLES[block.style]}">{_text(block.text)}</p>' if block.text else ""
        case Facts():
            return _table(map(_fact_row, block.facts))
        case Table():
            return _table(_rows(block))
    raise TypeError(f"no HTML for a {type(block).__name__}")


def _table(rows: Iterable[str]) -> str:
    table = f'<table style="border-collapse:collapse">{"".join(rows)}</table>'
    return f'<div style="overflow-x:auto;margin:.4em 0">{table}</div>'  # a wide one scrolls by itself


def _fact_row(fact: Fact) -> str:
    return _row("td", [(fact.label, "left"), (fact.value, "left"), (fact.remark, "left")])


def _rows(table: Table) -> Iterator[str]:
    sides = ["right" if column.right else "left" for column in table.columns]
    yield _row("th", [(column.title, side) for column, side in zip(table.columns, sides, strict=True)])
    for row in table.rows:
        yield _row("td", list(zip(row.cells, sides, strict=True)) if row.cells else [("", "left")], row)


def _row(kind: str, cells: Sequence[tuple[Cell, str]], row: Row | None = None) -> str:
    style = "" if row is None else row.style
    sides = {side: f"text-align:{side};{_CELL};" for side in ("left", "right")}
    if kind == "td":
        sides["right"] += "white-space:nowrap;"  # numbers
    shown = (
        f'<{kind} style="{sides[side]}{_STYLES[style_of(cell) or style]}">{_text(cell)}</{kind}>'
        for cell, side in cells
    )
    return f'<tr style="background:none">{"".join(shown)}</tr>'


def _text(cell: Cell) -> str:
    return escape(plain(cell))
