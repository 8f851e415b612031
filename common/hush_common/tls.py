"""TLS to a broker: contexts from the files that an address names."""

import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError

__all__ = ["remedy", "tls_context"]

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
    """Return what to do about a connection that failed. It reads the file of the authority.

    Args:
        error: why. That of the socket may be in its context, where aiomqtt leaves it.
        url: the address of the broker.
    """
    cause: BaseException | None = error
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
    """A device has nobody to ask: without this, OpenSSL would wait for somebody at the terminal."""
    return b""
