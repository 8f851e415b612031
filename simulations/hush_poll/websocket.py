"""The WebSocket of a real broker, as the phones of a poll use it: its address, and a check before the poll begins."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from urllib.parse import quote

from hush_client.sending.mqtt import MqttTransport
from hush_client.sending.transport import Link
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError, OptionError
from hush_common.topics import ALL_TASKS
from hush_poll.logins import Login

_AT_ONCE = 16
_SETTLE_S = 0.3  # until the broker has disconnected the first of two connections, if it does


def address_for_browsers(url: BrokerUrl) -> str:
    """Return the address with its login, and without the files, which are of this machine."""
    text = str(replace(url, ca=None, cert=None, key=None))
    if url.user is None or url.password is None:
        return text
    user = quote(url.user, safe="")
    return text.replace(f"{user}@", f"{user}:{quote(url.password, safe='')}@", 1)


async def check_websocket(url: BrokerUrl, logins: Sequence[Login] | None) -> None:
    """Connect as phones will; `logins` are those that no browser has yet, or None if all share the one in `url`.

    Raises:
        OptionError: phones could not answer.
    """
    if logins is None:
        await _check_shared(url)
        return
    for at in range(0, len(logins), _AT_ONCE):
        try:
            async with asyncio.TaskGroup() as group:
                for login in logins[at : at + _AT_ONCE]:
                    group.create_task(_check_login(url, login), name="hush-poll-check")
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None


async def _check_login(url: BrokerUrl, login: Login) -> None:
    async with AsyncExitStack() as stack:
        await _connect(stack, replace(url, user=login.user, password=login.password), "--logins")


async def _check_shared(url: BrokerUrl) -> None:
    async with AsyncExitStack() as stack:
        first = await _connect(stack, url, "--websocket")
        await _connect(stack, url, "--websocket")
        await asyncio.sleep(_SETTLE_S)
        try:
            await first.subscribe(ALL_TASKS)
        except BrokerError:
            raise OptionError(
                "--websocket",
                "this broker disconnects one phone when the next one comes with the same login; "
                "give each its own with --logins FILE",
            ) from None


async def _connect(stack: AsyncExitStack, url: BrokerUrl, option: str) -> Link:
    try:
        link = await stack.enter_async_context(MqttTransport(url, "hush-poll-check").connect())
        await link.subscribe(ALL_TASKS)
    except LoginRefusedError:
        who = "phones without a login" if url.user is None else f"the user {url.user}"
        raise OptionError(
            option, f"the broker refuses {who}; check user and password, and that it has read them"
        ) from None
    except BrokerError as error:
        raise OptionError("--websocket", f"phones could not connect: {error}") from None
    return link
