"""The options about a person's own CSV file, which `hush simulate` and `hush plan` share."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from hush_common.errors import OptionError

__all__ = ["Column", "Csv", "CsvOptions", "Decimal", "Delimiter", "Encoding", "Header", "Labels", "Missing", "Yes"]

Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="Your own data: every row is a client.")]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the file.")]
Labels = Annotated[str | None, typer.Option(metavar="A,B,…", help="Legal labels of a column of categories.")]
Yes = Annotated[
    str | None, typer.Option(metavar="VALUE", help="For a yes/no question: the text of a cell that means yes.")
]
Missing = Annotated[
    str | None, typer.Option(metavar="HOW", help="Rows without a value: drop them, or replace as devices do.")
]
Delimiter = Annotated[
    str | None, typer.Option(metavar="SIGN", help="Of the file: comma, semicolon, tab, pipe or another.")
]
Encoding = Annotated[str | None, typer.Option(metavar="NAME", help="Of the file, as cp1252 or utf-16.")]
Header = Annotated[str | None, typer.Option(metavar="yes|no", help="Whether the first line names columns.")]
Decimal = Annotated[str | None, typer.Option(metavar="SIGN", help="Before decimals in the file: . or ,")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """All of them, as given; None where one was left out."""

    csv: Csv = None
    column: Column = None
    labels: Labels = None
    yes: Yes = None
    missing: Missing = None
    delimiter: Delimiter = None
    encoding: Encoding = None
    header: Header = None
    decimal: Decimal = None

    def check_unused(self) -> None:
        """Refuse options without a file that they are about.

        Raises:
            OptionError: naming one of them.
        """
        for field in fields(self):
            if getattr(self, field.name) is not None:
                message = "describes a person's own data; name the file with --csv FILE as well"
                raise OptionError(f"--{field.name}", message)
