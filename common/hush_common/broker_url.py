"""The address of a broker, its login and its TLS.

It is `mqtt://[user[:password]@]host[:port]`, `mqtts://…` for TLS, `ws://…/path` or `wss://…/path`.
After a `?`, an address with TLS may name files: `ca=FILE`, `cert=FILE` and `key=FILE`.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from hush_common.errors import BrokerError, OptionError

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_FILES = ("ca", "cert", "key")
_PATH = "/mqtt"  # the default path of brokers for WebSockets
_MOST_BYTES = 65_535  # of a text in MQTT
_ENCODE = "write / as %2F, ? as %3F, # as %23 and @ as %40 in a user, a password or a path"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where the broker is and how to log in. `str()` and `repr()` leave the password out.

    Args:
        host: name or address; an IPv6 address without brackets.
        port: 1 to 65535.
        user: MQTT user name, or None to connect without one.
        password: its password.
        tls: whether the connection is encrypted and the broker's certificate checked.
        ca: PEM file of the certificate authority that signed it; None trusts the system's.
        cert: PEM file of the certificate that this side shows; None shows none.
        key: PEM file of its private key; None where `cert` holds both.
        path: of the WebSocket that carries MQTT; None for MQTT on plain TCP or TLS.

    Raises:
        ValueError: the parts do not fit together.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    path: str | None = None

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
        """Read an address. User and password may be percent-encoded.

        Raises:
            BrokerError: not such an address. The message repeats only its scheme: any other part of an address that
                cannot be parsed may be the password.
        """
        scheme = next((name for name in _PORTS if text.lower().startswith(f"{name}://")), None)
        try:
            return cls._of(scheme, text)
        except ValueError as error:
            shown = "broker" if scheme is None else f"{scheme}://…"
            raise BrokerError(shown, f"{error}; write for example mqtt://localhost:1883") from None

    @classmethod
    def _of(cls, scheme: str | None, text: str) -> "BrokerUrl":
        if not text.isprintable() or " " in text:
            raise ValueError("a space or control character cannot be part of an address")
        if scheme is None:
            raise ValueError("the address of a broker starts with mqtt://, mqtts://, ws:// or wss://")
        parts = _split(text)
        if not parts.hostname:
            raise ValueError("the address names no host")
        if "@" in parts.path + parts.query + parts.fragment:
            raise ValueError(f"an @ follows the host: {_ENCODE}")
        socket = parts.scheme.startswith("ws")
        if parts.fragment or (not socket and parts.path not in ("", "/")):
            raise ValueError("nothing may follow the port")
        files = _files(parts)
        return cls(
            host=parts.hostname,
            port=_port(parts),
            user=unquote(parts.username) if parts.username else None,
            password=None if parts.password is None else unquote(parts.password),
            tls=parts.scheme in ("mqtts", "wss"),
            ca=files.get("ca"),
            cert=files.get("cert"),
            key=files.get("key"),
            path=(parts.path or _PATH) if socket else None,
        )

    @property
    def _scheme(self) -> str:
        return ("mqtt" if self.path is None else "ws") + ("s" if self.tls else "")

    def __str__(self) -> str:
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


def _split(text: str) -> SplitResult:
    """The parts of an address; an error of `urlsplit` would repeat the login."""
    try:
        return urlsplit(text)
    except ValueError:
        raise ValueError("the host is neither a name nor an address in brackets") from None


def _port(parts: SplitResult) -> int:
    try:
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"the port is not a number from 1 to 65535, or a character is not encoded: {_ENCODE}")
    return port


def _files(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    files = dict(pairs)
    if len(files) < len(pairs):
        raise ValueError("an option appears twice after the ?")
    for name in files:
        if name not in _FILES:
            raise ValueError("the options of an address are ca, cert and key")
    return files


USER_HELP = "User name on the broker, if the address has none."
LOGIN_FILE_HELP = "File whose first line is the password, so that no process list shows it."


def address(text: str, given: Mapping[str, str], password_file: Path | None) -> BrokerUrl:
    """The address of the broker, completed by the options that were given.

    Args:
        text: the address.
        given: fields of a `BrokerUrl` that replace those of the address, except empty ones.
        password_file: its first line replaces the password.

    Raises:
        BrokerError: the address cannot be read.
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
    """The first line of a file, which an option names.

    Raises:
        OptionError: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file") from error


# What OpenSSL misses in certificates that break RFC 5280, by the number of its error (X509_V_ERR_... in x509_vfy.h).
# Python asks for all of it from 3.13 on (VERIFY_X509_STRICT), and always that an authority may sign.
_MISSED = {
    79: "basicConstraints = critical, CA:TRUE and keyUsage = critical, keyCertSign, cRLSign in the authority's",
    85: "authorityKeyIdentifier = keyid in the broker's, or subjectKeyIdentifier = hash in the authority's",
    86: "subjectKeyIdentifier = hash in the authority's",
    89: "basicConstraints = critical, CA:TRUE in the authority's",
    92: "keyUsage = critical, keyCertSign, cRLSign in the authority's",
}
_RULES = range(79, 94)
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY, _NAME = (2, 18, 19, 20, 21), (62, 64)
_START = "start the broker, or correct the address"
_GUIDE = 'as docs/device.md shows with openssl under "Certificates of your own"'


def tls_context(url: BrokerUrl) -> ssl.SSLContext | None:
    """What checks the broker's certificate, and shows ours where `url` names one; None without TLS. It reads files.

    Raises:
        BrokerError: a file cannot be read, or is not what it should be.
    """
    if not url.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=url.ca)
    except OSError as error:
        reason = error.strerror or "it is not a certificate"
        raise BrokerError(str(url), f"cannot read ca={url.ca} ({reason}); name a PEM file") from error
    if url.cert is not None:
        _show(context, url, url.cert)
    return context


def remedy(error: BaseException, url: BrokerUrl) -> str:
    """Return what to do about a connection that failed. It reads the file of the authority."""
    cause: BaseException | None = error  # aiomqtt leaves the error of the socket in its context
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return _START if cause is None else _remedy_for(cause.verify_code, url)


def _remedy_for(code: int, url: BrokerUrl) -> str:
    """For a certificate that was not accepted."""
    if code in _RULES:
        missed = _MISSED.get(code, "what RFC 5280 asks for")
        return f"the certificates lack {missed}, which Python 3.13 and later require; make them {_GUIDE}"
    if code == _EXPIRED:
        return _remedy_for_expired(url.ca)
    if code == _NOT_YET_VALID:
        return f"set the clock of this machine, which shows {datetime.now(UTC):%Y-%m-%d}"
    if code in _UNKNOWN_AUTHORITY:
        named = f"{url.ca} is another authority; name the one" if url.ca else "name the file of the authority (ca=FILE)"
        return f"{named} that signed the broker's certificate"
    return f"use an address that the broker's certificate has, or sign one for {url.host}" if code in _NAME else _START


def _remedy_for_expired(ca: str | None) -> str:
    """For the authority or the broker: OpenSSL does not say whose certificate has expired."""
    for one in () if ca is None else _certificates(ca):
        ended = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(one["notAfter"])), UTC)
        if ended < datetime.now(UTC):
            return f"the authority in {ca} has expired on {ended:%Y-%m-%d}: renew it {_GUIDE}, and replace that file"
    wrong = f"or the clock of this machine is wrong ({datetime.now(UTC):%Y-%m-%d})"
    return f"the broker's certificate has expired, {wrong}; sign a new one {_GUIDE}"


def _certificates(ca: str) -> Sequence[Mapping[str, object]]:
    """The certificates in a file; none where it cannot be read any more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=ca)
    except OSError:
        return []
    return context.get_ca_certs()


def _show(context: ssl.SSLContext, url: BrokerUrl, cert: str) -> None:
    shown = f"cert={cert}" if url.key is None else f"cert={cert} with key={url.key}"
    try:
        context.load_cert_chain(cert, url.key, password=_no_password)
    except ssl.SSLError as error:
        raise BrokerError(
            str(url),
            f"cannot use {shown} (they are not PEM files, do not belong together, or the key is encrypted)"
            "; name a certificate and its unencrypted key",
        ) from error
    except OSError as error:
        raise BrokerError(str(url), f"cannot read {shown} ({error.strerror}); name PEM files") from error


def _no_password() -> bytes:
    """Without this, OpenSSL would ask for a password at the terminal."""
    return b""
