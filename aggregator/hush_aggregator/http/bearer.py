"""The bearer token: from a file that only its owner reads, or from the environment; kept as its hash alone."""

import hmac
import os
import re
import stat
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from hush_common.errors import OptionError

__all__ = ["TOKEN_VARIABLE", "Token", "find_token"]

TOKEN_VARIABLE = "HUSH_HTTP_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST = 32
_LONGEST = 512
_FEWEST = 6  # signs that differ: 32 random decimal digits have fewer once in 10^7 times
_SIGNS = re.compile(r"[A-Za-z0-9._~+/=-]+")  # those of a bearer token (RFC 6750)
_MAKE = "make one with: openssl rand -hex 32"


class Token:
    """A token, of which the hash is kept. No text of it shows anything.

    Args:
        text: at least 32 letters, digits and `. _ ~ + / = -`.

    Raises:
        ValueError: it is too short, too long, has other signs, or repeats itself. The message does not repeat it.
    """

    __slots__ = ("_hash",)

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise ValueError(f"is shorter than {_SHORTEST} letters; {_MAKE}")
        if len(text) > _LONGEST or not _SIGNS.fullmatch(text):
            raise ValueError(f"is not made of at most {_LONGEST} letters, digits and . _ ~ + / = -; {_MAKE}")
        if len(set(text)) < _FEWEST or _repeats(text):
            raise ValueError(f"repeats itself, so that it can be guessed; {_MAKE}")
        self._hash = sha256(text.encode()).digest()

    def fits(self, text: str) -> bool:
        """Whether `text` is the token, in a time that says nothing about it."""
        return hmac.compare_digest(self._hash, sha256(text.encode("utf-8", "surrogatepass")).digest())

    def __repr__(self) -> str:
        return "Token(…)"


def _repeats(text: str) -> bool:
    """Whether a part of it, of at most half its length, comes again and again until its end."""
    return any(text.startswith(text[period:]) for period in range(1, len(text) // 2 + 1))


def find_token(option: str, file: Path | None, environment: Mapping[str, str]) -> Token | None:
    """The token in the first line of a file or, without one, in the environment; None if it is in neither.

    Args:
        option: of the command line that names the file, for messages.
        file: the file.
        environment: where the variable `HUSH_HTTP_TOKEN` is looked for.

    Raises:
        OptionError: the file cannot be read, others can read it too, or what is there is no token.
    """
    if file is None:
        text, name = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not text:
            return None
    else:
        text, name = _first_line(option, file), option
    try:
        return Token(text)
    except ValueError as error:
        raise OptionError(name, f"the token {'' if file is None else f'in {file} '}{error}") from None


def _first_line(option: str, file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            if sys.platform != "win32" and _is_open_to_others(os.fstat(opened.fileno())):
                raise OptionError(option, f"others can read {file} too; run: chmod 600 {file}")
            return opened.readline(_LONGEST + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file with the token") from error


def _is_open_to_others(found: os.stat_result) -> bool:
    """Whether others than the owner can read or change it. What a service manager hands over is root's, by a group."""
    mine = found.st_uid == os.geteuid()
    return bool(found.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if mine else stat.S_IWGRP)))
