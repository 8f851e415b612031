"""The option of services about their log."""

from typing import Annotated

import typer

from hush_aggregator.logs import LogFormat

LogFormatOption = Annotated[
    LogFormat,
    typer.Option(envvar="HUSH_LOG_FORMAT", help="Lines of text, or of JSON for programs; both say the same."),
]
