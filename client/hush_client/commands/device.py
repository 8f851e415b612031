"""What commands that act as a device are told, and what they ask of its state."""

import math
from pathlib import Path
from typing import Annotated

import typer

from hush_client.limits import LONGEST_KEEP
from hush_client.state import ledger
from hush_client.state.database import FILE_NAME, State, device_name, state_directory, unusable
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP
from hush_common.errors import OptionError, printable
from hush_common.topics import is_sender

__all__ = [
    "Broker",
    "Ca",
    "Cert",
    "Device",
    "Keep",
    "Key",
    "PasswordFile",
    "StateDirectory",
    "Timeout",
    "User",
    "check_device",
    "check_seconds",
    "check_there",
    "name_state",
    "verified",
]

Broker = Annotated[
    str, typer.Option(envvar="HUSH_BROKER", help="mqtt[s]:// or ws[s]://, [user:password@]host[:port][/path]")
]
User = Annotated[str, typer.Option(help=USER_HELP)]
PasswordFile = Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)]
Ca = Annotated[str, typer.Option(help="PEM file of the authority that signed the broker's certificate.")]
Cert = Annotated[str, typer.Option(help="PEM file of the certificate that this device presents.")]
Key = Annotated[str, typer.Option(help="PEM file of its private key.")]
Device = Annotated[str, typer.Option(help="Name of the device; generated once and kept if not given.")]
StateDirectory = Annotated[
    Path | None, typer.Option(envvar="HUSH_STATE", help="Directory in which the device records what it has spent.")
]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for the broker.")]
Keep = Annotated[
    float,
    typer.Option(
        min=0,
        max=LONGEST_KEEP,
        help="Seconds for which a report is kept after the broker's acknowledgement, in case the broker forgets it.",
    ),
]


def check_device(device: str) -> None:
    """Refuse a name that cannot be part of a topic.

    Raises:
        typer.BadParameter: it is none.
    """
    if device and not is_sender(device):
        raise typer.BadParameter(f"{device!r} is not a device name; use letters, digits and . _ @ : -")


def check_seconds(option: str, seconds: float) -> None:
    """Refuse an endless number of seconds, and what is none.

    Raises:
        typer.BadParameter: it is such a one.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{option} {seconds} is not a number of seconds; write for example 10")


def check_there(directory: Path) -> None:
    """Refuse a place without a state: one that is looked at by mistake must not pass for a device that spent nothing.

    Raises:
        OptionError: there is none.
        StateError: nobody can tell.
    """
    try:
        (directory / FILE_NAME).stat()
    except FileNotFoundError as error:
        wrong = f"holds no state of a device (no {FILE_NAME})" if directory.is_dir() else "does not exist"
        raise OptionError("--state", f"{directory} {wrong}; name the directory that the device was given") from error
    except OSError as error:
        raise unusable(directory, error) from error


def name_state(given: Path | None) -> None:
    """Name the state that a command has used on standard error, where nobody has named one."""
    if given is None:
        typer.echo(printable(f"hush: that was the state in {state_directory(given)}; --state names another"), err=True)


async def verified(directory: Path, device: str) -> str:
    """The name of the device, once its accounts are the sums of their charges: a damaged one might be spent twice."""
    state = await State.open(directory)
    try:
        await state.run(ledger.verify)
        return device or await state.run(device_name)
    finally:
        await state.close()
