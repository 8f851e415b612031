"""The address of a broker: `mqtt://[user[:password]@]host[:port]`, or `mqtts://…[?ca=FILE]` for TLS."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from hush_common.errors import BrokerError

__all__ = ["BrokerUrl"]

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_PASSWORD = re.compile(r"//([^:@]*):.*@")  # greedy: a password may hold any character, an @ or / typed raw among them


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where the broker is and how to log in. `str()` and `repr()` leave the password out.

    Args:
        host: name or address; an IPv6 address without brackets.
        port: 1 to 65535.
        user: MQTT user name, or None to connect without one.
        password: its password.
        tls: whether the connection is encrypted and the broker's certificate checked.
        ca: file of the certificate authority that signed it; None trusts the system's.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None

    @classmethod
    def parse(cls, text: str) -> "BrokerUrl":
        """Read an address. User and password may be percent-encoded.

        Raises:
            BrokerError: not such an address; the message repeats it without the password.
        """
        shown = _PASSWORD.sub(r"//\1@", text)
        try:
            return cls._of(urlsplit(text), text)
        except ValueError as error:
            raise BrokerError(shown, f"{error}; write for example mqtt://localhost:1883") from None

    @classmethod
    def _of(cls, parts: SplitResult, text: str) -> "BrokerUrl":
        if not text.isprintable() or " " in text:
            raise ValueError("a space or control character cannot be part of an address")
        if parts.scheme not in _PORTS or not text.lower().startswith(f"{parts.scheme}://"):
            raise ValueError("the address of a broker starts with mqtt:// or mqtts://")
        if not parts.hostname:
            raise ValueError("the address names no host")
        if parts.path not in ("", "/") or parts.fragment:
            raise ValueError("nothing may follow the port")
        if parts.password is not None and not parts.username:
            raise ValueError("a password needs a user before it")
        return cls(
            host=parts.hostname,
            port=_port(parts),
            user=unquote(parts.username) if parts.username else None,
            password=None if parts.password is None else unquote(parts.password),
            tls=parts.scheme == "mqtts",
            ca=_ca(parts),
        )

    def __str__(self) -> str:
        scheme = "mqtts" if self.tls else "mqtt"
        login = "" if self.user is None else f"{quote(self.user, safe='')}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        ca = "" if self.ca is None else f"?ca={quote(self.ca)}"
        return f"{scheme}://{login}{host}:{self.port}{ca}"


def _port(parts: SplitResult) -> int:
    try:
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the port is no number from 1 to 65535")
    return port


def _ca(parts: SplitResult) -> str | None:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ca = options.pop("ca", None)
    if options:
        raise ValueError(f"the only option of an address is ca, not {next(iter(options))}")
    if ca is not None and parts.scheme != "mqtts":
        raise ValueError("ca belongs to mqtts://; mqtt:// is not encrypted")
    if ca == "":
        raise ValueError("ca names no file")
    return ca
