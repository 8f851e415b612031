"""Make cells in another process. It imports no more than that needs: each worker of a sweep pays for it anew."""

import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.synchronize import Event

from hush_common.errors import HushError
from hush_simulations.sweeps.cell import CellWork, FinishedCell, versions_here
from hush_simulations.sweeps.evaluation import evaluate_cell

_stopped: Event | None = None
"""In a worker: set when the sweep was stopped."""


def make_cell(work: CellWork) -> tuple[int, FinishedCell]:
    """Simulate one cell, in any process."""
    try:
        rows = evaluate_cell(work, lambda: _stopped is None or not _stopped.is_set())
    except HushError as error:
        raise HushError(str(error)) from None  # others have more than a text, and cannot be pickled
    return work.number, FinishedCell(work.key, work.seed, versions_here(), tuple(rows))


def begin(stopped: Event) -> None:
    """In a worker: ignore Ctrl-C, which the parent handles, and end when the parent does."""
    global _stopped  # noqa: PLW0603 - there is one pool in a worker
    _stopped = stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # modules are not garbage: no need to look again
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: "multiprocessing.process.BaseProcess") -> None:
    parent.join()
    os._exit(1)
