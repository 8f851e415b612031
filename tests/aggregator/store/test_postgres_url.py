"""The address of a database means what it means to libpq, but that a server elsewhere has to prove its name."""

from collections.abc import Mapping

import pytest

from hush_aggregator.store.postgres_url import PostgresUrl

conninfo = pytest.importorskip("psycopg.conninfo")


def parts(options: Mapping[str, object]) -> list[str]:
    """The parts of an address; commas alone are no port."""
    found = [str(options.get(name) or "") for name in ("user", "password", "host", "port", "dbname")]
    return [part if part.strip(",") else "" for part in found]


@pytest.mark.parametrize(
    "where",
    ["a", "a:5433", "a,b", "a:5433,b:5434", "a,b:5433", "a:5433,b", "a,b:5433,c", "[::1]:5433,b", "%2Frun%2Fx,b:1", ""],
)
def test_each_host_has_its_own_port(where: str) -> None:
    text = f"postgresql://al:p%40w@{where}/db?connect_timeout=3"
    assert parts(PostgresUrl.parse(text).options) == parts(conninfo.conninfo_to_dict(text))


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://h@db.example/x", "verify-full"),
        ("postgresql://h@db.example/x?sslmode=require", "require"),
        ("postgresql://h@10.0.0.7/x", "verify-full"),
        ("postgresql://h@localhost/x", None),
        ("postgresql://h@127.0.0.1/x", None),
        ("postgresql:///x", None),
        ("postgresql://h@%2Frun%2Fpostgresql/x", None),
        ("postgresql://h@127.0.0.1,db.example/x", "verify-full"),
    ],
)
def test_a_server_elsewhere_has_to_prove_its_name(address: str, mode: str | None) -> None:
    assert PostgresUrl.parse(address).options.get("sslmode") == mode
