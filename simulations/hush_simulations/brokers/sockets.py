"""Where brokers that hush starts for itself listen: on a Unix socket that other users of the machine cannot reach."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_PARENT = 70  # bytes; the path of a Unix socket has at most 103


@contextmanager
def private_socket() -> Iterator[Path]:
    """Yield the path of a socket in a directory that only this user may enter; both are deleted at the end."""
    parent = None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PARENT else "/tmp"  # noqa: S108 - mode 0700
    with tempfile.TemporaryDirectory(prefix="hush-broker-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory) / "s"
