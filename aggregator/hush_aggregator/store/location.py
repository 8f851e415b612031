"""Where a store is: a file of SQLite, or a database of PostgreSQL. Here a store is opened by its address."""

from pathlib import Path
from typing import TYPE_CHECKING

from hush_aggregator.store.postgres_url import EXAMPLE, SCHEMES, PostgresUrl
from hush_common.address import looks_like_address, scheme_of
from hush_common.errors import StoreError

if TYPE_CHECKING:
    from hush_aggregator.store.base import OpenedStore, ServedStore, StoreEditor
    from hush_aggregator.store.quotas import Limits

StoreAddress = Path | PostgresUrl


def parse_store(text: str) -> StoreAddress:
    """Return the file that a text names, or the database of a `postgresql://` address.

    Raises:
        StoreError: not such an address, or one in another form. The message repeats nothing of it.
    """
    if scheme_of(text) in SCHEMES:
        return PostgresUrl.parse(text)
    if looks_like_address(text):
        raise StoreError(f"store: a database in a form that hush does not take; {EXAMPLE}, or ./NAME for a file")
    return Path(text)


def store_file(address: StoreAddress, what: str) -> Path:
    """Return the file of a store; raise StoreError, saying `what` to do, if it is a database."""
    if isinstance(address, Path):
        return address
    raise StoreError(f"{address}: {what}")


def open_store(address: StoreAddress, limits: "Limits | None" = None, worker: str = "1") -> "ServedStore":
    """Open the store of an aggregator, made if it is missing; raise StoreError if that cannot be."""
    if isinstance(address, Path):
        from hush_aggregator.store.sqlite import SqliteStore  # noqa: PLC0415 - numpy

        return SqliteStore(address, limits)
    from hush_aggregator.store.postgres import PostgresStore  # noqa: PLC0415 - psycopg, of an extra

    return PostgresStore(address, limits, worker)


def open_editor(address: StoreAddress) -> "StoreEditor":
    """Open a store for a command that writes; raise StoreError if it is not there or cannot be opened."""
    if isinstance(address, Path):
        from hush_aggregator.store.sqlite import SqliteEditor  # noqa: PLC0415 - as above

        return SqliteEditor(address)
    from hush_aggregator.store.postgres import PostgresEditor  # noqa: PLC0415 - as above

    return PostgresEditor(address)


def open_reader(address: StoreAddress) -> "OpenedStore":
    """Open a store for reading; raise StoreError if it is not there or cannot be opened."""
    if isinstance(address, Path):
        from hush_aggregator.store.reading import SqliteReader  # noqa: PLC0415 - as above

        return SqliteReader(address)
    from hush_aggregator.store.postgres import PostgresReader  # noqa: PLC0415 - as above

    return PostgresReader(address)
