"""Where accepted reports, tallies and refusal counters live."""

from hush_aggregator.store.base import (
    UNKNOWN,
    Accepted,
    BrokerMemory,
    CommitOutcome,
    Origin,
    Owner,
    Store,
    StoredRecall,
    StoreReader,
    TaskCount,
    TaskRow,
    TaskState,
)
from hush_aggregator.store.quotas import Limits, quota_file
from hush_aggregator.store.reading import SqliteReader
from hush_aggregator.store.sqlite import SqliteEditor, SqliteStore

__all__ = [
    "UNKNOWN",
    "Accepted",
    "BrokerMemory",
    "CommitOutcome",
    "Limits",
    "Origin",
    "Owner",
    "SqliteEditor",
    "SqliteReader",
    "SqliteStore",
    "Store",
    "StoreReader",
    "StoredRecall",
    "TaskCount",
    "TaskRow",
    "TaskState",
    "quota_file",
]
