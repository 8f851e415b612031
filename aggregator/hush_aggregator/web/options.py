"""The options of HTTP: those of `hush http`, and with the prefix `http` those of `hush serve`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from hush_common.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Who may do what over HTTP."""

    write: Annotated[
        bool, Option("--write", help="Let holders of the token publish, withdraw and close tasks over HTTP.")
    ] = False
    token_file: Annotated[Path | None, Option(help="File whose first line is the token, or set HUSH_HTTP_TOKEN.")] = (
        None
    )
    open: Annotated[bool, Option("--open", help="Let everybody read who reaches an address that others can reach.")] = (
        False
    )
    host: Annotated[tuple[str, ...], Option(help="A further name under which HTTP is asked; may be repeated.")] = ()
    trusted_proxy: Annotated[
        tuple[str, ...],
        Option(
            metavar="ADDRESS", help="Address or network of a proxy whose forwarded addresses count; may be repeated."
        ),
    ] = ()
    admin_token_file: Annotated[
        Path | None,
        Option(help="File with a line NAME TOKEN for each administrator: only they may write and read single reports."),
    ] = None
    audit_log: Annotated[
        Path | None, Option(help="File to which each action of an administrator is appended, as a line of JSON.")
    ] = None
    root_path: Annotated[str, Option(metavar="PATH", help="Path below which a proxy has all of it, such as /hush.")] = (
        ""
    )
    frame_ancestors: Annotated[
        tuple[str, ...],
        Option(
            metavar="ORIGIN",
            help="Origin whose pages may show the page in a frame, as https://example.org; may be repeated.",
        ),
    ] = ()

    @property
    def given(self) -> list[str]:
        """The names of the options that are not left out, as typed."""
        return [field.name.replace("_", "-") for field in fields(self) if getattr(self, field.name) != field.default]
