"""The address of a broker and its login.

It is `mqtt://[user[:password]@]host[:port]`, `mqtts://…` for TLS, `ws://…/path` or `wss://…/path`.
After a `?`, an address with TLS may name files: `ca=FILE`, `cert=FILE` and `key=FILE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, quote

from hush_common.address import ENCODE, AddressParts, parse_address, scheme_of
from hush_common.errors import BrokerError, OptionError

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_FILES = ("ca", "cert", "key")
_PATH = "/mqtt"  # the default path of brokers for WebSockets
_MOST_BYTES = 65_535  # of a text in MQTT


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """The address of a broker and the login. `str()` and `repr()` leave the password out.

    Raises:
        ValueError: the parts do not fit together.
    """

    host: str  # name or address; an IPv6 address without brackets; or the path of a Unix socket, from `of_socket` only
    port: int  # 1 to 65535
    user: str | None = None  # MQTT user name, or None to connect without one
    password: str | None = field(default=None, repr=False)  # its password
    tls: bool = False  # whether the connection is encrypted and the broker's certificate checked
    ca: str | None = None  # PEM file of the certificate authority that signed it; None trusts the system's
    cert: str | None = None  # PEM file of the certificate that this side shows; None shows none
    key: str | None = None  # PEM file of its private key; None where `cert` holds both
    path: str | None = None  # of the WebSocket that carries MQTT; None for MQTT on plain TCP or TLS

    def __post_init__(self) -> None:
        if self.password is not None and not self.user:
            raise ValueError("a password needs a user before it")
        for name, text in (("user", self.user), ("password", self.password)):
            if text is not None and not _fits(text):
                raise ValueError(f"the {name} is not text of at most {_MOST_BYTES} bytes in UTF-8")
        for name in _FILES:
            file = getattr(self, name)
            if file == "":
                raise ValueError(f"{name} names no file")
            if file is not None and not self.tls:
                raise ValueError(f"{name} belongs to mqtts:// and wss://; {self._scheme}:// is not encrypted")
        if self.key is not None and self.cert is None:
            raise ValueError("a key needs its certificate; name it as cert")

    @classmethod
    def parse(cls, text: str) -> "BrokerUrl":
        """Parse an address. User and password may be percent-encoded.

        Raises:
            BrokerError: not such an address. The message repeats only its scheme: any other part may be the password.
        """
        scheme = scheme_of(text)
        try:
            return cls._of(text)
        except ValueError as error:
            reason = str(error)
        shown = f"{scheme}://…" if scheme in _PORTS else "broker"
        raise BrokerError(shown, f"{reason}; write for example mqtt://localhost:1883")

    @classmethod
    def _of(cls, text: str) -> "BrokerUrl":
        parts = parse_address(text)
        if parts.scheme not in _PORTS:
            raise ValueError("the address of a broker starts with mqtt://, mqtts://, ws:// or wss://")
        if not parts.host:
            raise ValueError("the address names no host")
        socket = parts.scheme.startswith("ws")
        if not socket and parts.path not in ("", "/"):
            raise ValueError("nothing may follow the port")
        if not parts.has_plain_path:
            raise ValueError(f"the path has a character that is not encoded: {ENCODE}")
        files = _files(parts)
        return cls(
            host=parts.host.lower(),
            port=parts.port or _PORTS[parts.scheme],
            user=parts.user,
            password=parts.password,
            tls=parts.scheme in ("mqtts", "wss"),
            ca=files.get("ca"),
            cert=files.get("cert"),
            key=files.get("key"),
            path=(parts.path or _PATH) if socket else None,
        )

    @classmethod
    def of_socket(cls, path: Path) -> "BrokerUrl":
        """Return the address of a broker that listens on a Unix socket. No text is parsed as one."""
        return cls(str(path.absolute()), 1)

    @property
    def is_socket(self) -> bool:
        """Whether the host is the path of a Unix socket."""
        return self.host.startswith("/")

    @property
    def _scheme(self) -> str:
        return ("mqtt" if self.path is None else "ws") + ("s" if self.tls else "")

    def __str__(self) -> str:
        if self.is_socket:
            return f"unix:{self.host}"
        login = "" if self.user is None else f"{quote(self.user, safe='')}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        named = {name: file for name in _FILES if (file := getattr(self, name)) is not None}
        files = "&".join(f"{name}={quote(file, errors='surrogateescape')}" for name, file in named.items())
        return f"{self._scheme}://{login}{host}:{self.port}{self.path or ''}{'?' if files else ''}{files}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached without a network: `localhost`, 127.0.0.0/8 or ::1."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _fits(text: str) -> bool:
    try:
        return len(text.encode()) <= _MOST_BYTES
    except UnicodeEncodeError:  # bytes of the command line or of a variable that are not text
        return False


def _files(parts: AddressParts) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    files = dict(pairs)
    if len(files) < len(pairs):
        raise ValueError("an option appears twice after the ?")
    for name in files:
        if name not in _FILES:
            raise ValueError("the options of an address are ca, cert and key")
    return files


def address(text: str, given: Mapping[str, str], password_file: Path | None) -> BrokerUrl:
    """Return the address of the broker, completed by the options.

    Args:
        text: the address.
        given: fields of a `BrokerUrl` that replace those of the address, except empty ones.
        password_file: its first line replaces the password.

    Raises:
        BrokerError: the address is invalid.
        OptionError: the file cannot be read, or the parts do not fit together.
    """
    parts = {name: value for name, value in given.items() if value}
    if password_file is not None:
        parts["password"] = password_in(password_file)
    parsed = BrokerUrl.parse(text)
    try:
        return replace(parsed, **parts)  # type: ignore[arg-type]  # the names above are all of texts
    except ValueError as error:
        raise OptionError("--broker", f"{parsed}: {error}") from None


def password_in(file: Path, option: str = "--password-file") -> str:
    """Return the first line of a file that an option names; OptionError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file") from error
