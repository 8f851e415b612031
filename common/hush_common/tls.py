"""TLS to a broker: contexts from the files that an address names."""

import ssl

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


def remedy(error: BaseException) -> str:
    """What to do about a connection that did not come about.

    Args:
        error: why. That of the socket may be in its context, where aiomqtt leaves it.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or cause.verify_code not in _RULES:
        return "start the broker, or correct the address"
    missed = _MISSED.get(cause.verify_code, "what RFC 5280 asks for")
    return (
        f"the certificates lack {missed}, which Python 3.13 and later require; make them as docs/device.md shows"
        ' with openssl under "Certificates of your own"'
    )


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
