"""Warn an operator whose broker lets anyone in."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex

from hush_aggregator.log_fields import fields
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.mqtt import Options, connect

__all__ = ["warn_if_open"]

_LOG = logging.getLogger("hush.aggregator")
_POLL_S = 0.2


async def warn_if_open(url: BrokerUrl, is_connected: Callable[[], bool]) -> None:
    """Log one warning if the broker accepts a connection without a login. Tries once, and never raises.

    Args:
        url: the broker, with the login of the aggregator. Where that has none, the broker is open once it is connected.
        is_connected: whether the aggregator is connected. Until it is, a failed try would say nothing about logins.
    """
    while not is_connected():  # noqa: ASYNC110 - a connection has no event, and this is in no hurry
        await asyncio.sleep(_POLL_S)
    has_login = (url.user, url.cert) != (None, None)
    if not has_login or await _lets_in(replace(url, user=None, password=None, cert=None, key=None)):
        _LOG.warning(
            "%s accepts clients without a login: unless its rules forbid them to write, anyone who reaches it can take "
            "over an estimate with one message; for a broker with logins and rules, run hush broker config",
            url,
            extra=fields("open_broker"),
        )


async def _lets_in(url: BrokerUrl) -> bool:
    options = Options(
        identifier=f"hush-open-{token_hex(8)}",  # a client id that is taken would end the connection of another
        payload_limit=0,
        inbox_messages=1,
        inbox_bytes=1,
        window=1,
        patience=1.0,
    )
    try:
        async with connect(url, options):
            return True
    except BrokerError:
        return False
