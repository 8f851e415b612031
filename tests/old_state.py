"""Durable states as older versions of hush wrote them."""

__all__ = ["VERSION_1"]

VERSION_1 = """
CREATE TABLE charge (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, purpose TEXT NOT NULL, mechanism TEXT NOT NULL, epsilon TEXT NOT NULL,
    report_id BLOB NOT NULL, charged_at TEXT NOT NULL,
    PRIMARY KEY (device, task, round)
) WITHOUT ROWID;
CREATE TABLE account (
    device TEXT NOT NULL, purpose TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (device, purpose)
) WITHOUT ROWID;
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), device TEXT NOT NULL);
PRAGMA application_id = 1752527720;
PRAGMA user_version = 1;
"""
"""Before reports had a moment to be sent at, and the ledger kinds of entries; empty."""
