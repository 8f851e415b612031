"""Results of sweeps that nobody made: every figure of a row depends on its cell."""

from pathlib import Path

import numpy as np

from hush import SweepResult, SweepRow
from hush_simulations.sweeps.result import Parameter

__all__ = ["GRID", "row", "swept"]


def row(cell: int, parameters: dict[str, Parameter], **changed: object) -> SweepRow:
    """One of 100 trials; every figure depends on the cell."""
    given: dict[str, object] = {
        "cell": cell,
        "parameters": parameters,
        "task_id": "t",
        "mechanism": "laplace",
        "epsilon": 1.0,
        "rounds": 1,
        "clients": 500,
        "liars": 0.0,
        "scope": "last",
        "part": "",
        "unit": "cm",
        "target": "reporters",
        "interval": "reporters",
        "method": "m",
        "confidence": 0.95,
        "trials": 100,
        "estimates": 100,
        "truth": 170.0,
        "bias": 0.1 * cell,
        "bias_stderr": 0.1,
        "rmse": 1.0 + cell,
        "rmse_lower": 0.5 + cell,
        "rmse_upper": 1.6 + cell,
        "theory_stderr": 1.1 + cell,
        "made": 100,
        "covered": 96,
        "coverage": 0.96 - cell / 100,
        "coverage_lower": 0.9 - cell / 100,
        "coverage_upper": 0.99 - cell / 100,
        "mean_width": 4.0,
        "failures": 0,
        "failure": "",
        **changed,
    }
    return SweepRow(**given)  # type: ignore[arg-type]


def swept(**axes: tuple[Parameter, ...]) -> SweepResult:
    """All combinations of up to three axes; double underscores are dots."""
    names = [name.replace("__", ".") for name in axes]
    grid = np.stack(np.meshgrid(*(np.arange(len(some)) for some in axes.values()), indexing="ij"), -1)
    rows = []
    for cell, places in enumerate(grid.reshape(-1, len(names)).tolist()):
        point = {name: values[place] for name, values, place in zip(names, axes.values(), places, strict=True)}
        rows.append(row(cell, point, clients=int(point.get("population.clients", 500))))
    return SweepResult(dict(zip(names, axes.values(), strict=True)), tuple(rows), 100, 1, 0.95, Path())


GRID = swept(task__mechanism=("laplace", "table"), population__clients=(500, 5000), task__epsilon=("0.5", "1", "4"))
