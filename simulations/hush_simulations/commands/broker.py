"""`hush broker run`: the embedded broker, until Ctrl-C."""

import asyncio

from hush_common.broker_url import is_loopback
from hush_common.errors import OptionError
from hush_common.terminal import note
from hush_simulations.brokers.embedded import embedded_broker
from hush_simulations.commands.options import parse_port, run_to_end


def run(port: str, host: str) -> None:
    """Run the embedded broker until Ctrl-C; port 0 takes a free one."""
    number = parse_port(port)
    if not host or not host.isprintable() or "/" in host or " " in host:
        raise OptionError("--host", f"{host[:60]!r} is not an address; write for example 127.0.0.1")
    run_to_end(_serve(host, number))


async def _serve(host: str, port: int) -> None:
    async with embedded_broker(host, port) as url:
        note(f"broker on {url}, Ctrl-C stops it")
        if not is_loopback(host):
            note("WARNING: anybody who reaches this address may connect; there are no passwords")
        await asyncio.Event().wait()
