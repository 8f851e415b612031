"""The options that the commands of a device share."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hush_client.limits import LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.sending.schedule import LONGEST_SPREAD
from hush_common.broker_url import BrokerUrl
from hush_common.epsilon import parse_epsilon
from hush_common.options import BROKER, OUTPUT, Login, Option
from hush_common.topics import is_sender

PRIVACY, DEVICE = "Privacy", "Device"
"""Groups of options."""

StateDirectory = Annotated[
    Path | None,
    Option(
        group=DEVICE,
        metavar="DIR",
        envvar="HUSH_STATE",
        help="Directory in which the device records what it has spent.",
    ),
]
Timeout = Annotated[float, Option(group=BROKER, metavar="SECONDS", min=0, help="Seconds to wait for the broker.")]
Spread = Annotated[
    float,
    Option(
        group=DEVICE,
        metavar="SECONDS",
        min=0,
        max=LONGEST_SPREAD,
        help="Longest random delay before sending, in seconds, so that the time of sending reveals nothing.",
    ),
]
Keep = Annotated[
    float,
    Option(
        group=DEVICE,
        metavar="SECONDS",
        min=0,
        max=LONGEST_KEEP,
        help="Seconds for which a report is kept after the broker's acknowledgement, in case the broker forgets it.",
    ),
]
JsonOption = Annotated[bool, Option("--json", group=OUTPUT, help="Print JSON instead of text.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker of the aggregator, and how a device logs in there."""

    broker: Annotated[
        str,
        Option(
            group=BROKER,
            metavar="ADDRESS",
            envvar="HUSH_BROKER",
            help="mqtt[s]:// or ws[s]://, [user:password@]host[:port][/path]",
        ),
    ] = "mqtt://localhost"
    login: Login
    ca: Annotated[
        str,
        Option(group=BROKER, metavar="FILE", help="PEM file of the authority that signed the broker's certificate."),
    ] = ""
    cert: Annotated[
        str, Option(group=BROKER, metavar="FILE", help="PEM file of the certificate that this device presents.")
    ] = ""
    key: Annotated[str, Option(group=BROKER, metavar="FILE", help="PEM file of its private key.")] = ""

    def address(self) -> BrokerUrl:
        """Return the address with the login and the files."""
        return self.login.at(self.broker, ca=self.ca, cert=self.cert, key=self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """The limits of a device."""

    max_epsilon: Annotated[str, Option(group=PRIVACY, metavar="EPS", help="Largest epsilon of one task.")] = "4"
    lifetime: Annotated[
        str,
        Option(group=PRIVACY, metavar="EPS", help="Largest total epsilon of all tasks with one purpose."),
    ] = "4"
    total: Annotated[
        str,
        Option(
            group=PRIVACY,
            metavar="EPS",
            help="Largest total epsilon over all purposes; no such limit if not given.",
        ),
    ] = ""
    sticky: Annotated[
        bool,
        Option(
            "--sticky",
            group=PRIVACY,
            help="Answer sticky (memoized) tasks too: they reveal when a value changes.",
        ),
    ] = False

    def policy(self) -> Policy:
        """Return the limits; raise EpsilonError for a text that is not an epsilon."""
        return Policy(
            parse_epsilon(self.max_epsilon, field="--max-epsilon"),
            parse_epsilon(self.lifetime, field="--lifetime"),
            parse_epsilon(self.total, field="--total") if self.total else None,
            self.sticky,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """The device that a command is."""

    device: Annotated[str, Option(group=DEVICE, help="Name of the device; generated once and kept if not given.")] = ""
    state: StateDirectory = None

    def __post_init__(self) -> None:
        if self.device and not is_sender(self.device):
            raise typer.BadParameter(f"{self.device!r} is not a device name; use letters, digits and . _ @ : -")


def check_seconds(option: str, seconds: float) -> None:
    """Raise typer.BadParameter for infinite seconds, and for NaN."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{option} {seconds} is not a number of seconds; write for example 10")
