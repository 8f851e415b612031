"""Settle: what becomes of entries that the broker has acknowledged, all in one write."""

import sqlite3
from collections import Counter
from collections.abc import Iterable

from hush_client.state import kept, ledger, outbox, recalls
from hush_client.state.recalls import Obeyed

__all__ = ["settle"]


def settle(
    connection: sqlite3.Connection,
    *,
    acknowledged: Iterable[int],
    resent: Counter[int],
    news: Iterable[Obeyed],
    place: str,
    now: int,
    room: int | None,
) -> int:
    """Keep or delete what is acknowledged, and write down what was sent again and what became of recalls.

    Args:
        connection: inside a transaction.
        acknowledged: entries of the outbox.
        resent: how often entries were handed to the network again.
        news: of recalls.
        place: broker and sender.
        now: milliseconds since 1970.
        room: how many more bytes may be kept, below 0 where it is too much already; None keeps nothing.

    Returns:
        By how many bytes grew what is kept; below 0 where more was dropped than came in.
    """
    recalls.save(connection, place, news)
    ledger.resent(connection, resent)
    if room is None:
        outbox.delete(connection, acknowledged)
        return 0
    grown = kept.keep(connection, acknowledged, place, now)
    if grown > room:
        grown -= kept.make_room(connection, grown - room)
    return grown
