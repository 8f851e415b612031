"""The options that several commands of the aggregator have."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hush_aggregator.logs import LogFormat
from hush_common.broker_url import password_in
from hush_common.errors import OptionError
from hush_common.options import BROKER, OUTPUT, Argument, Option

HTTP = "HTTP"
"""A group of options."""

TOKEN_VARIABLE = "HUSH_HTTP_TOKEN"  # noqa: S105 - the name of a variable

Id = Annotated[str, Argument(metavar="TASK", help="Id of the task.", show_default=False)]
StoreOption = Annotated[
    str,
    Option(
        metavar="STORE",
        envvar="HUSH_STORE",
        help="The store of its aggregator: a file, or postgresql://….",
        show_default=False,
    ),
]
BrokerOption = Annotated[
    str,
    Option(
        group=BROKER,
        metavar="ADDRESS",
        envvar="HUSH_BROKER",
        help="mqtt://[user[:password]@]host[:port], or mqtts:// for TLS.",
    ),
]
ConfidenceOption = Annotated[
    float, Option(metavar="X", envvar="HUSH_CONFIDENCE", help="Confidence level of the intervals, between 0 and 1.")
]
LogFormatOption = Annotated[
    LogFormat,
    Option(group=OUTPUT, envvar="HUSH_LOG_FORMAT", help="Lines of text, or of JSON for programs; both say the same."),
]
JsonOption = Annotated[bool, Option("--json", group=OUTPUT, help="Print JSON instead of text.")]


def check_confidence(confidence: float) -> None:
    """Raise OptionError for a confidence that does not lie between 0 and 1."""
    if not 0 < confidence < 1:
        raise OptionError("--confidence", f"{confidence:g} does not lie between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderToken:
    """The token with which a command reads from a service."""

    token_file: Annotated[
        Path | None,
        Option(group=HTTP, help=f"With --http: file whose first line is the token, or set {TOKEN_VARIABLE}."),
    ] = None

    def read(self) -> str:
        """Return the token; empty without one."""
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE, "")
        return password_in(self.token_file, "--token-file")
