"""A place for a store of each kind: tests of the contract run on both."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import Postgres
from stored import drop_reports, stored_ids

from hush_aggregator.store import Limits
from hush_aggregator.store.base import OpenedStore, ServedStore, StoreEditor
from hush_aggregator.store.location import StoreAddress, open_editor, open_reader, open_store
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError


@dataclass(frozen=True)
class StorePlace:
    """Where a store is to be: nothing is there yet."""

    address: StoreAddress

    def open(self, limits: Limits | None = None, worker: str = "1") -> ServedStore:
        return open_store(self.address, limits, worker)

    def edit(self) -> StoreEditor:
        return open_editor(self.address)

    def read(self) -> OpenedStore:
        return open_reader(self.address)

    def is_there(self) -> bool:
        try:
            self.read().close()
        except StoreError:
            return False
        return True

    def ids(self) -> list[bytes]:
        """The ids of all reports."""
        if isinstance(self.address, Path):
            return stored_ids(self.address)
        with self.address.connect() as connection:
            return [row[0] for row in connection.execute("SELECT uuid_send(id) FROM report").fetchall()]

    def execute(self, statement: str) -> None:
        """Change the tables without the store: damage, or what a failure leaves."""
        if isinstance(self.address, Path):
            with closing(sqlite3.connect(self.address, timeout=30)) as connection, connection:
                connection.execute(statement)
        else:
            with self.address.connect() as there:
                there.execute(statement)

    def drop_reports(self) -> None:
        """Delete all reports, and leave the tallies."""
        if isinstance(self.address, Path):
            drop_reports(self.address)
        else:
            self.execute("DELETE FROM report")


_NUMBERS = Counter[int]()


@contextmanager
def in_postgres(server: Postgres) -> Iterator[StorePlace]:
    """A schema of its own in a server."""
    _NUMBERS[server.port] += 1
    url = PostgresUrl.parse(f"{server.url}?schema=s{_NUMBERS[server.port]}")
    yield StorePlace(url)
    with url.connect() as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {url.schema}, {url.schema}_quota CASCADE")
