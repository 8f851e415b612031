"""Durable states as older versions of hush wrote them."""

__all__ = ["VERSIONS", "VERSION_1"]

_LEDGER_OF_DRAWS = """
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
"""
_OUTBOX_WITH_MOMENTS = """
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL,
    not_before INTEGER NOT NULL DEFAULT 0, delay INTEGER NOT NULL DEFAULT 0
);
"""
_IDENTITY = """
CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), device TEXT NOT NULL);
PRAGMA application_id = 1752527720;
"""

VERSION_1 = f"""
{_LEDGER_OF_DRAWS}
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL
);
{_IDENTITY}
PRAGMA user_version = 1;
"""
"""Before reports had a moment to be sent at, and the ledger kinds of entries; empty."""

_VERSION_2 = f"""
{_LEDGER_OF_DRAWS}
{_OUTBOX_WITH_MOMENTS}
{_IDENTITY}
PRAGMA user_version = 2;
"""

_VERSION_3 = f"""
CREATE TABLE charge (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, purpose TEXT NOT NULL, mechanism TEXT NOT NULL, epsilon TEXT NOT NULL,
    report_id BLOB NOT NULL, charged_at TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'draw',
    PRIMARY KEY (device, task, round)
) WITHOUT ROWID;
CREATE TABLE account (
    device TEXT NOT NULL, purpose TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (device, purpose)
) WITHOUT ROWID;
CREATE TABLE refusal (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL,
    purpose TEXT NOT NULL, epsilon TEXT NOT NULL, refused_at TEXT NOT NULL,
    PRIMARY KEY (device, task, round, reason)
) WITHOUT ROWID;
CREATE TABLE resend (report_id BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID;
{_OUTBOX_WITH_MOMENTS}
CREATE TABLE memory (
    device TEXT NOT NULL, task TEXT NOT NULL, threshold INTEGER NOT NULL, reports TEXT NOT NULL,
    PRIMARY KEY (device, task)
) WITHOUT ROWID;
{_IDENTITY}
PRAGMA user_version = 3;
"""

_VERSION_5 = f"""
CREATE TABLE charge (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, purpose TEXT NOT NULL, mechanism TEXT NOT NULL, epsilon TEXT NOT NULL,
    report_id BLOB NOT NULL, charged_at TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'draw',
    sequence INTEGER, resends INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (device, task, round)
) WITHOUT ROWID;
CREATE TABLE account (
    device TEXT NOT NULL, purpose TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (device, purpose)
) WITHOUT ROWID;
CREATE TABLE refusal (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL,
    purpose TEXT NOT NULL, epsilon TEXT NOT NULL, refused_at TEXT NOT NULL,
    PRIMARY KEY (device, task, round, reason)
) WITHOUT ROWID;
CREATE INDEX sent_as ON charge (sequence);
CREATE TABLE pin (device TEXT, task TEXT, digest BLOB NOT NULL, PRIMARY KEY (device, task)) WITHOUT ROWID;
{_OUTBOX_WITH_MOMENTS}
CREATE TABLE memory (
    device TEXT NOT NULL, task TEXT NOT NULL, threshold INTEGER NOT NULL, reports TEXT NOT NULL, substitute INTEGER,
    PRIMARY KEY (device, task)
) WITHOUT ROWID;
{_IDENTITY}
PRAGMA user_version = 5;
"""

VERSIONS = {1: VERSION_1, 2: _VERSION_2, 3: _VERSION_3, 5: _VERSION_5}
"""Every one that was ever written, empty."""
