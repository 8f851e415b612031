"""`hush broker run`: the embedded broker on a port of its own, until Ctrl-C."""

import asyncio
import sys
from ipaddress import ip_address
from typing import Annotated

import typer

from hush_common.errors import OptionError
from hush_simulations.brokers.embedded import embedded_broker
from hush_simulations.commands.interrupt import run_to_end
from hush_simulations.commands.options import parse_port

__all__ = ["app"]

app: typer.Typer = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="A small MQTT broker, to try things. For anything that lasts, run mosquitto.",
)


@app.callback()
def _root() -> None:
    pass


@app.command()
def run(
    *,
    port: Annotated[int, typer.Option(parser=parse_port, help="TCP port; 0 takes a free one.")] = 1883,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the embedded broker until Ctrl-C. It keeps everything in memory and asks nobody for a password."""
    if not host or "/" in host or " " in host:
        raise OptionError("--host", f"{host[:60]!r} is not an address; write for example 127.0.0.1")
    run_to_end(_serve(host, port))


async def _serve(host: str, port: int) -> None:
    async with embedded_broker(host, port) as url:
        print(f"hush: broker on {url}, Ctrl-C stops it", file=sys.stderr)
        if not _is_loopback(host):
            print(
                "hush: WARNING: anybody who reaches this address may connect; there are no passwords", file=sys.stderr
            )
        await asyncio.Event().wait()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
