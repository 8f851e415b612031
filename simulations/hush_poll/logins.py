"""The logins of phones on a real broker: each browser gets its own, and the same one again after a reload."""

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hush_common.errors import OptionError
from hush_common.files import FileLock, replace_file
from hush_common.topics import is_sender

_BROWSER = re.compile(r"[0-9a-f]{32}")
MOST_LOGINS = 10_000
_MOST_BYTES = 4_000_000


class Login(NamedTuple):
    """A user of the broker, and its password."""

    user: str
    password: str


class Logins:
    """The logins in a file, and which browser has which: that is in a second file, so that it survives a restart.

    A login stays with the browser that got it first. Otherwise two browsers could have the same one: the broker would
    disconnect each when the other connects, and a report that waits in the first would come from the wrong sender.

    Raises:
        OptionError: the file cannot be read, has a line that is not a login, or another poll uses it.
    """

    def __init__(self, path: Path) -> None:
        self._logins = _read(path)
        self._path = path.with_name(f"{path.name}.taken")
        try:
            self._lock = FileLock.take(path.with_name(f"{path.name}.lock"))
            self._taken = self._read_taken()
            if self._lock is not None:
                self._write({})  # an error ends the command, and not the first answer
        except OSError as error:
            raise OptionError(
                "--logins", f"{error.filename or self._path} cannot be written ({error.strerror}); move {path.name}"
            ) from error
        if self._lock is None:
            raise OptionError("--logins", f"another hush poll uses {path}; end it, or give each poll its own file")

    def close(self) -> None:
        """Let another poll use the file."""
        if self._lock is not None:
            self._lock.release()

    @property
    def free(self) -> list[Login]:
        """The logins that no browser has."""
        users = set(self._taken.values())
        return [Login(user, password) for user, password in self._logins.items() if user not in users]

    def of(self, browser: str) -> Login | None:
        """Return the login of a browser, stored before this returns; None if none is left.

        Raises:
            ValueError: that is not the name of a browser.
        """
        if not _BROWSER.fullmatch(browser):
            raise ValueError("not the name of a browser")
        user = self._taken.get(browser)
        if user is not None:
            return Login(user, self._logins[user])
        login = next(iter(self.free), None)
        if login is not None:
            self._write({browser: login.user})
        return login

    def _read_taken(self) -> dict[str, str]:
        pairs: list[list[str]] = []
        with suppress(FileNotFoundError):
            pairs = [line.split(" ", 1) for line in self._path.read_text("utf-8", errors="replace").splitlines()]
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1] in self._logins}  # noqa: PLR2004

    def _write(self, more: dict[str, str]) -> None:
        taken = self._taken | more
        replace_file(self._path, "".join(f"{browser} {user}\n" for browser, user in taken.items()).encode())
        self._taken = taken


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError("--logins", f"{path} cannot be read ({reason}); name a file with user:password") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        user, colon, password = line.strip().partition(":")
        if not user and not colon:
            continue
        if not (is_sender(user) and password):  # the line may have a password: it is not shown
            raise OptionError("--logins", f"line {number} of {path} is not a login; write user:password")
        if user in found:
            raise OptionError("--logins", f"line {number} of {path} has a user again; give each phone its own")
        found[user] = password
    if not 1 <= len(found) <= MOST_LOGINS:
        raise OptionError("--logins", f"{path} has {len(found)} logins; write 1 to {MOST_LOGINS}, each in a line")
    return found
