"""The broker of a simulation: embedded, the installed mosquitto, or one that is running already."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hush_common.broker_url import BrokerUrl, is_loopback
from hush_common.errors import BrokerError, OptionError
from hush_common.suggestion import meant
from hush_simulations.brokers.sockets import private_socket

BROKERS = ("embedded", "mosquitto")
"""Brokers that a simulation starts by itself."""

_START_SECONDS = 10.0

# Nothing may be dropped: by default mosquitto drops messages above 1000 for a client that is away or slow, and holds
# back those above 20 that are not acknowledged.
_CONFIGURATION = """\
listener 0 {socket}
allow_anonymous true
max_queued_messages 0
max_inflight_messages 4000
persistence true
persistence_location {directory}/
log_dest file {directory}/mosquitto.log
"""


def parse_broker(text: str, option: str = "--broker") -> str:
    """Return `embedded`, `mosquitto` or the address of a running broker; raise OptionError for other texts."""
    if text in BROKERS:
        return text
    if "://" not in text:
        hint = meant(text, BROKERS)  # the text is not repeated: it may have a password
        raise OptionError(option, f"is not a broker; write embedded, mosquitto or mqtt://host:port{hint}")
    try:
        BrokerUrl.parse(text)
    except BrokerError as error:
        raise OptionError(option, str(error)) from None
    return text


def is_external(choice: str) -> bool:
    """Whether `choice` is a broker that others may use too."""
    return choice not in BROKERS


def is_local(choice: str) -> bool:
    """Whether what is sent to `choice`, as `parse_broker` returns it, stays on this machine."""
    return not is_external(choice) or is_loopback(BrokerUrl.parse(choice).host)


@asynccontextmanager
async def open_broker(choice: str, directory: Path) -> AsyncIterator[BrokerUrl]:
    """Yield the URL of a broker; stop it at the end if it was started here. mosquitto keeps its files in `directory`.

    Raises:
        BrokerError: it cannot be started.
    """
    if choice == "embedded":
        from hush_simulations.brokers.embedded import private_broker  # noqa: PLC0415 - amqtt takes a quarter of a second

        async with private_broker() as address:
            yield address
    elif choice == "mosquitto":
        async with mosquitto_broker(directory) as address:
            yield address
    else:
        yield BrokerUrl.parse(choice)


def installed_mosquitto() -> str | None:
    """Return the path of the mosquitto server, also in the directory of Debian, which most users lack in their PATH."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")


@asynccontextmanager
async def mosquitto_broker(directory: Path) -> AsyncIterator[BrokerUrl]:
    """Run the installed mosquitto on a private socket; it may raise BrokerError. Its files go to `directory`."""
    program = installed_mosquitto()
    if program is None:
        raise BrokerError(
            "mosquitto", "is not installed; run for example: apt install mosquitto (or use the embedded broker)"
        )
    with private_socket() as path:
        process = await _start(program, directory, path)
        try:
            if not await _comes_up(process, path):
                raise BrokerError("mosquitto", f"does not start ({_last_line(directory)}); use the embedded broker")
            yield BrokerUrl.of_socket(path)
        finally:
            await _stop(process)


async def _start(program: str, directory: Path, path: Path) -> Process:
    configuration = directory / "mosquitto.conf"
    text = _CONFIGURATION.format(socket=path, directory=directory)
    if os.geteuid() == 0:
        text += "user root\n"  # else it changes to a user who may not write to the directory
    configuration.write_text(text, encoding="utf-8")
    # In a separate session Ctrl-C does not reach it: it is stopped last.
    return await asyncio.create_subprocess_exec(
        program, "-c", str(configuration), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )


async def _comes_up(process: Process, path: Path) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while process.returncode is None and loop.time() < deadline:
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return True
    return False


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_line(directory: Path) -> str:
    try:
        lines = (directory / "mosquitto.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1].strip() if lines else "its log is empty"
