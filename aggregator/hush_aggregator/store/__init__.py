"""Where accepted reports, tallies and refusal counters live."""

from hush_aggregator.store.base import UNKNOWN, Accepted, CommitOutcome, Store, StoreReader
from hush_aggregator.store.reading import SqliteReader
from hush_aggregator.store.sqlite import SqliteStore

__all__ = ["UNKNOWN", "Accepted", "CommitOutcome", "SqliteReader", "SqliteStore", "Store", "StoreReader"]
