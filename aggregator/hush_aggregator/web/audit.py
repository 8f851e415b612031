"""The audit log: what each administrator did over HTTP, a line of JSON each.

A line has the time, the name of the token, the action, the task, and what became of it; never a token, and nothing of a
report. The file has mode 0600. It is opened for each line, so that another program may rename it at any time.
"""

import errno
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hush_common.errors import OptionError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class AuditLog:
    """A file of actions."""

    path: Path

    def check(self, option: str) -> None:
        """Raise OptionError if it cannot be written."""
        try:
            os.close(self._open())
        except OSError as error:
            raise OptionError(option, f"{self.path} cannot be written ({error.strerror}); name another file") from error

    def write(self, name: str, action: str, task: str | None, status: str, round_: int | None = None) -> None:
        """Append a line, which is on the disk when this returns. Raises OSError if it cannot be written.

        Args:
            name: of the token.
            action: what was done.
            task: id of the task, if one was named.
            status: `ok`, or the kind of the problem.
            round_: if it was about one.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        line: dict[str, object] = {"v": 1, "at": at, "token": name, "action": action, "task": task, "status": status}
        line |= {} if round_ is None else {"round": round_}
        number = self._open()
        try:
            _append(number, json.dumps(line).encode() + b"\n")
            os.fsync(number)
        finally:
            os.close(number)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        number = os.open(self.path, flags, 0o600)  # a pipe without a reader is an error and does not block
        try:
            if hasattr(os, "fchmod") and os.fstat(number).st_mode & 0o077:
                os.fchmod(number, 0o600)  # another program has made it
        except OSError:
            os.close(number)
            raise
        return number


def _append(number: int, line: bytes) -> None:
    """Append a line by one write, so that lines never mix; whole, or not at all: OSError then."""
    if fcntl is not None:
        fcntl.flock(number, fcntl.LOCK_EX)  # no other process appends while a part is taken back
    written = os.write(number, line)
    if written == len(line):
        return
    with suppress(OSError):  # it is no file: what a pipe has taken is gone
        os.ftruncate(number, os.lseek(number, 0, os.SEEK_CUR) - written)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
