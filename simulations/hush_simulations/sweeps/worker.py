"""Make cells in another process. It imports no more than that needs: each worker of a sweep pays for it anew."""

import gc
from typing import cast

from hush_common.child_python import Parent
from hush_common.errors import HushError
from hush_simulations.sweeps.cell import CellWork, FinishedCell, versions_here
from hush_simulations.sweeps.evaluation import evaluate_cell

WORKER = "from hush_simulations.sweeps.worker import work; work()"
"""The program of a worker."""


def make_cell(work: CellWork) -> tuple[int, FinishedCell]:
    """Simulate one cell, in any process."""
    try:
        rows = evaluate_cell(work)
    except HushError as error:
        raise HushError(str(error)) from None  # others have more than a text, and cannot be pickled
    return work.number, FinishedCell(work.key, work.seed, versions_here(), tuple(rows))


def work() -> None:
    """Make cells in this process, for the one that started it, until that one ends."""
    parent = Parent()
    gc.freeze()  # modules are not garbage: no need to look again
    for asked in parent.requests():
        try:
            _, made = make_cell(cast("CellWork", asked))
        except HushError as error:
            parent.answer(error)
        else:
            parent.answer(made)
