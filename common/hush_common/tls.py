"""TLS to a broker: like reading a task file, an edge where the core of both sides touches files."""

import ssl

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError

__all__ = ["tls_context"]


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
        reason = error.strerror or "it is no certificate"
        raise BrokerError(str(url), f"cannot read ca={url.ca} ({reason}); name a PEM file") from error
    if url.cert is not None:
        _show(context, url, url.cert)
    return context


def _show(context: ssl.SSLContext, url: BrokerUrl, cert: str) -> None:
    shown = f"cert={cert}" if url.key is None else f"cert={cert} with key={url.key}"
    try:
        context.load_cert_chain(cert, url.key, password=_no_password)
    except ssl.SSLError as error:
        raise BrokerError(
            str(url),
            f"cannot use {shown} (they are no PEM files, do not belong together, or the key is encrypted)"
            "; name a certificate and its key in the clear",
        ) from error
    except OSError as error:
        raise BrokerError(str(url), f"cannot read {shown} ({error.strerror}); name PEM files") from error


def _no_password() -> bytes:
    """A device has nobody to ask: without this, OpenSSL would wait for somebody at the terminal."""
    return b""
