"""How a CSV file is to be read, as far as a person says it; what is left open is found where certain, or asked."""

import codecs
from dataclasses import dataclass

from hush_common.errors import OptionError
from hush_simulations.scenarios.population import Treatment, check_treatment

__all__ = ["DELIMITERS", "CsvRules"]

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Those that are looked for, by the name that may be written for them."""

_ESCAPED_TAB = "\\t"  # as a person types it in a shell


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRules:
    """What a person says about a file; None where it is left open.

    Args:
        delimiter: one character, or a name in `DELIMITERS`.
        encoding: a text encoding that Python knows.
        header: "yes" if the first line names the columns, "no" if it is a client.
        decimal: "." or ",", the sign before the decimals; the other one may then separate thousands.
        missing: what becomes of rows without a value.

    Raises:
        OptionError: one of them cannot be used.
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: str | None = None
    decimal: str | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _delimiter(self.delimiter))
        _check("--header", self.header, ("yes", "no"))
        _check("--decimal", self.decimal, (".", ","))
        check_treatment("--missing", self.missing)
        if self.encoding is not None:
            _check_encoding(self.encoding)

    @property
    def treatment(self) -> Treatment | None:
        """What becomes of rows without a value."""
        return check_treatment("--missing", self.missing)


def _delimiter(text: str) -> str:
    found = DELIMITERS.get(text.lower(), "\t" if text == _ESCAPED_TAB else text)
    if len(found) != 1 or found.isalnum() or found in '".+-\r\n\0\ufeff':
        raise OptionError(
            "--delimiter", f"{text[:40]!r} separates no columns; write {', '.join(DELIMITERS)} or one character"
        )
    return found


def _check(option: str, text: str | None, legal: tuple[str, str]) -> None:
    if text is not None and text not in legal:
        raise OptionError(option, f"{text[:40]!r} is not one of its values; write {option} {' or '.join(legal)}")


def _check_encoding(name: str) -> None:
    try:
        codecs.lookup(name)
        b"ab".decode(name, "ignore")  # which refuses what is known, but no encoding of text
    except (LookupError, ValueError):
        raise OptionError(
            "--encoding", f"{name[:40]!r} is not a known encoding; write for example utf-8, utf-16 or cp1252"
        ) from None
