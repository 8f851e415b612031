"""Synced: what a short run has sent, and what it leaves to later ones."""

from dataclasses import dataclass

from hush_common.errors import HushError

__all__ = ["Synced"]


@dataclass(frozen=True, slots=True)
class Synced:
    """What came of one `sync`.

    Args:
        done: whether the broker was heard, and has acknowledged all that was due.
        resent: reports or frames that went once more because the aggregator asked, since the client was opened.
        planned: those of them whose moment is still to come.
        waiting: reports or frames that the broker has never acknowledged.
        trouble: why there is no connection, if there is none.
        elsewhere: reports or frames that are kept for another broker or device name, and do not go by this one.
    """

    done: bool
    resent: int
    planned: int
    waiting: int
    trouble: HushError | None = None
    elsewhere: int = 0
