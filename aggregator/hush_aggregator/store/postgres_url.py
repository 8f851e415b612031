"""The address of a PostgreSQL database, and connections to it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from hush_common.address import ENCODE, AddressParts, parse_address
from hush_common.broker_url import is_loopback
from hush_common.errors import StoreError, StoreUnavailableError, printable

if TYPE_CHECKING:
    from psycopg import Connection as _Connection

    Connection = _Connection[tuple[Any, ...]]

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "hush"
_MOST_HOSTS = 16
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_REMEDY = 'install hush with PostgreSQL: pip install "hush-ldp[postgres]"'
EXAMPLE = "write for example postgresql://hush@db.example/hush"
_OURS = {  # the connection of a machine that is gone is noticed within some seconds, on both sides
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "hush",
}
# Whatever the address, the environment, the role and the database say.
_REQUIRED = {"client_encoding": "UTF8"}
_SESSION = (
    "SET synchronous_commit TO on; SET default_transaction_isolation TO 'read committed'; "
    "SET default_transaction_read_only TO off; SET statement_timeout TO 0; SET lock_timeout TO 0; "
    "SET extra_float_digits TO 1; SET standard_conforming_strings TO on; SET bytea_output TO hex; "
    # not every version of the server has all of these
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN "
    "('idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_SERVER_SIDE = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """An address of libpq, without its password in `str()` and `repr()`.

    Attributes:
        schema: that has the tables.
        options: what libpq takes, the password among it.
    """

    schema: str
    options: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "PostgresUrl":
        """Parse `postgresql://[user[:password]@][host][:port]/database[?schema=NAME&…]`; further options are libpq's.

        A server that is not this machine has to prove its name by a certificate, unless `sslmode` says otherwise.

        Raises:
            StoreError: not such an address, or psycopg is not installed. The message repeats nothing of it, because any
                part may be the password.
        """
        import_psycopg()
        try:
            address = parse_address(text, hosts=_MOST_HOSTS, sockets=True)
            schema, options = _options(address)
        except ValueError as error:
            reason = str(error)
        else:
            if not all(not host or host.startswith(("/", "@")) or is_loopback(host) for host in _hosts(options)):
                options.setdefault("sslmode", "verify-full")
                if options["sslmode"].startswith("verify"):
                    options.setdefault("sslrootcert", "system")
            return cls(schema, options)
        raise StoreError(f"postgresql://…: {reason}; {EXAMPLE}")

    def __str__(self) -> str:
        names = ("user", "host", "port", "dbname")
        user, host, port, database = (quote(self.options.get(name, ""), safe=",") for name in names)
        where = f"{user}{'@' if user else ''}{host}{':' if port else ''}{port}"
        return f"postgresql://{where}/{database}" + (f"?schema={self.schema}" if self.schema != DEFAULT_SCHEMA else "")

    def connect(self) -> "Connection":
        """Connect; each statement is a transaction unless one is begun, and what is committed is on the disk.

        Raises:
            StoreError: the server cannot be reached, or refuses.
        """
        psycopg = import_psycopg()
        try:
            connection: Connection = psycopg.connect(**{**_OURS, **self.options, **_REQUIRED}, autocommit=True)
        except psycopg.Error as error:
            why = f"{self}: {first_line(error)}; see that the server runs and the login is right"
            raise StoreUnavailableError(why) from error
        try:
            connection.execute(f"SET search_path TO {self.schema}; {_SESSION}")
            if connection.info.host and not connection.info.host.startswith("/"):
                connection.execute(_SERVER_SIDE)
            self._check_encoding(connection)
        except psycopg.OperationalError as error:
            connection.close()
            raise StoreUnavailableError(f"{self}: {first_line(error)}") from error
        except psycopg.Error as error:
            connection.close()
            raise StoreError(f"{self}: {first_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_encoding(self, connection: "Connection") -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding == "SQL_ASCII":
            raise StoreError(
                f"{self}: the database has the encoding {encoding}, in which text has no characters; name another "
                "one, made with CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'"
            )


def import_psycopg() -> Any:  # noqa: ANN401 - a module
    """Return psycopg, which only a store in PostgreSQL needs."""
    try:
        import psycopg  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise StoreError(f"a store in PostgreSQL needs psycopg; {_REMEDY}") from error
    return psycopg


def first_line(error: Exception) -> str:
    """Return what a server or libpq says of an error, in one printable line."""
    lines = str(error).strip().splitlines()
    return printable(lines[0].strip() if lines else type(error).__name__)


def _options(address: AddressParts) -> tuple[str, dict[str, str]]:
    """Return the schema of an address and what libpq takes.

    Raises:
        ValueError: it is not one of a database. The message repeats nothing of it.
    """
    pairs = [option.partition("=") for option in address.query.split("&") if option]
    options = {unquote(name): unquote(value) for name, _, value in pairs}
    if len(options) < len(pairs) or not options.keys() <= _names() | {"schema"}:
        raise ValueError(f"an option after the ? appears twice or is not one of libpq, or is not encoded: {ENCODE}")
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise ValueError("schema is not a name of small letters, digits and _ that begins with a letter")
    ports = ["" if port is None else str(port) for _, port in address.hosts]
    given = {
        "user": address.user,
        "password": address.password,
        "host": ",".join(host for host, _ in address.hosts),
        "port": ",".join(ports) if any(ports) else "",  # one for each host: libpq takes a single one for all
        "dbname": unquote(address.path.removeprefix("/")),
    }
    options |= {name: value for name, value in given.items() if value}
    if not options.get("dbname"):
        raise ValueError("the address names no database")
    if not address.has_plain_path or "/" in address.path[1:] or ":" in options.get("user", ""):
        raise ValueError(f"a name has a character that is not encoded: {ENCODE}")
    return schema, options


def _hosts(options: Mapping[str, str]) -> list[str]:
    return [*options.get("host", "").split(","), *options.get("hostaddr", "").split(",")]


def _names() -> set[str]:
    """Return the names of the options that libpq takes."""
    from psycopg import pq  # noqa: PLC0415 - as above

    return {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
