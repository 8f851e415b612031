"""How long the certificate of a broker is valid."""

import asyncio
import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.mqtt.connection import remedy, tls_context

_PATIENCE_S = 10.0
_EVERY_S, _AGAIN_S = 6 * 3600.0, 60.0


async def certificate_end(url: BrokerUrl) -> datetime | None:
    """Open a connection for its certificate alone, and return the aware time at which it expires; None without TLS.

    Raises:
        BrokerError: the broker cannot be reached, its certificate is not accepted, or a file cannot be read.
    """
    context = await asyncio.to_thread(tls_context, url)
    if context is None:
        return None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(url.host, url.port, ssl=context, server_hostname=url.host)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise BrokerError(str(url), f"cannot connect ({_reason(error)}); {remedy(error, url)}") from error
    found = writer.get_extra_info("peercert")
    writer.transport.abort()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(found["notAfter"]), UTC)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio repeats the address instead
    return getattr(error, "verify_message", None) or getattr(error, "strerror", None) or "no answer"


class CertificateWatch:
    """Reads the end of a broker's certificate again and again.

    Attributes:
        until: aware time at which it expires; None without TLS, or if it was never read.
    """

    def __init__(self, url: BrokerUrl) -> None:
        self._url = url
        self.until: datetime | None = None

    async def run(self) -> NoReturn:
        while True:
            with suppress(BrokerError):  # the connection for reports logs it
                self.until = await certificate_end(self._url)
            await asyncio.sleep(_EVERY_S if self.until or not self._url.tls else _AGAIN_S)
