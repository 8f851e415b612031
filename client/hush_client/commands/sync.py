"""`hush sync`: send what waits or was recalled, and answer nothing."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from hush_client.client import Client
from hush_client.commands.device import (
    Broker,
    Ca,
    Cert,
    Device,
    Keep,
    Key,
    PasswordFile,
    StateDirectory,
    Timeout,
    User,
    check_device,
    check_seconds,
    check_there,
    name_state,
    verified,
)
from hush_client.limits import LONGEST_KEEP
from hush_client.sending.synced import Synced
from hush_client.state.location import state_directory
from hush_common.broker_url import BrokerUrl, address
from hush_common.errors import BrokerError
from hush_common.formatting import exact, whole

__all__ = ["app"]

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def sync(
    *,
    broker: Broker = "mqtt://localhost",
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    device: Device = "",
    state: StateDirectory = None,
    timeout: Timeout = 10.0,
    keep: Keep = LONGEST_KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Send what waits, and what an aggregator asks for again because the broker may have forgotten it.

    A recall spreads what it asks for over a time of its own: what is not due yet goes with a later run.
    """
    check_device(device)
    check_seconds("--timeout", timeout)
    completed = address(broker, {"user": user, "ca": ca, "cert": cert, "key": key}, password_file)
    directory = state_directory(state)
    check_there(directory)
    synced = asyncio.run(_sync(completed, directory, device, timeout=timeout, keep=keep))
    if as_json:
        counts = {"resent": synced.resent, "planned": synced.planned, "waiting": synced.waiting}
        counts |= {"elsewhere": synced.elsewhere} if synced.elsewhere else {}
        typer.echo(json.dumps({"v": 1, "done": synced.done} | counts))
    else:
        typer.echo(_sentence(synced))
    name_state(state)
    if not synced.done:
        why = f"the broker did not acknowledge everything within {exact(timeout)} s"
        raise synced.trouble or BrokerError(str(completed), why)


async def _sync(broker: BrokerUrl, directory: Path, device: str, *, timeout: float, keep: float) -> Synced:  # noqa: ASYNC109 - its end is no error
    name = await verified(directory, device)
    async with Client(broker, device=name, state=directory, keep=keep) as client:
        return await client.sync(timeout=timeout)


def _sentence(synced: Synced) -> str:
    later = f"{whole(synced.planned)} more at a later moment, with a later run" if synced.planned else "no more later"
    waiting = f"{whole(synced.waiting)} still wait for the broker" if synced.waiting else "nothing waits for the broker"
    others = ""
    if synced.elsewhere:
        others = f" {whole(synced.elsewhere)} kept for another broker or device name go by that alone; check --device."
    return f"{whole(synced.resent)} sent again for a recall, {later}; {waiting}.{others}"
