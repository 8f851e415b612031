"""The error of a sweep as a chart in text: a line for each cell, all on one logarithmic axis."""

from collections.abc import Iterator
from dataclasses import replace

from hush_aggregator.charts import Range, Ranges
from hush_common.formatting import significant
from hush_simulations.display.sweep_figures import layout_of, representative_row, value_label
from hush_simulations.sweeps.result import SweepResult

__all__ = ["charts_of_sweep"]

_MOST = 60


def charts_of_sweep(result: SweepResult, *, signs: bool) -> Iterator[Ranges]:
    """A chart for each panel of the figure of errors, on the same axis.

    Args:
        result: of a sweep.
        signs: whether the terminal shows more than ASCII.
    """
    layout = layout_of(result)
    found: list[tuple[str, list[Range]]] = []
    for panel in layout.panels:
        ranges = []
        for line in panel.lines:
            for cell in line.cells:
                row = representative_row(cell)
                if row.rmse and row.rmse_lower and row.rmse_upper:
                    at = value_label(layout.along, row.parameters[layout.along], row)
                    name = f"{line.name}, {at}" if line.name else at
                    text = f"{significant(row.rmse if row.unit else 100 * row.rmse)} {row.unit or 'points'}"
                    ranges.append(
                        Range(name, row.rmse_lower, row.rmse_upper, row.rmse, row.theory_stderr or None, text)
                    )
        found += [(panel.title, ranges)] if ranges else []
    every = [one for _, ranges in found for one in ranges]
    if not every or len(every) > _MOST:
        return
    unit = representative_row(layout.panels[0].lines[0].cells[0]).unit
    low, high = Ranges.span(every)
    ends = tuple(f"{significant(end if unit else 100 * end, 2)} {unit or 'points'}" for end in (low, high))
    for title, ranges in found:
        spelled = ranges if signs else [replace(one, name=one.name.replace("ε", "epsilon")) for one in ranges]
        head = f"Error (rms){f', {title}' if title else ''}"
        yield Ranges(head, spelled, (ends[0], ends[1]), True, signs, "measured", "theory", (low, high))
