"""The name of a device that was given none: random, made once, kept in the state."""

import sqlite3

from hush_client.state.ledger import DAMAGED
from hush_common.errors import StateError
from hush_common.rng import SystemRng
from hush_common.topics import is_sender

__all__ = ["SCHEMA", "device_name"]

SCHEMA = """
CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), device TEXT NOT NULL);
"""


def device_name(connection: sqlite3.Connection) -> str:
    """The name of this device, the same one every time.

    Raises:
        StateError: what was kept is no name.
    """
    fresh = f"device-{SystemRng().token_bytes(8).hex()}"
    connection.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (fresh,))
    (name,) = connection.execute("SELECT device FROM identity").fetchone()
    if not is_sender(str(name)):
        raise StateError(f"the state holds no device name; {DAMAGED}")
    return str(name)
