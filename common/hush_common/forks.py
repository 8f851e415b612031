"""A fork waits until no thread is inside SQLite: the new process would inherit locks that nobody there releases."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_TURN = threading.RLock()  # one thread may take it again: a collection of garbage closes connections anywhere
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_TURN.acquire, after_in_parent=_TURN.release, after_in_child=_TURN.release)


def before_a_fork(work: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
    """Return `work(*args, **kwargs)`, once no other such call runs; no process is forked meanwhile."""
    with _TURN:
        return work(*args, **kwargs)
