"""The directory of a sweep: what it is, a file for each cell that is made, and the tables at the end.

`sweep.json` says which sweep it is; another one is refused by the name of what differs. `cells/` has a file for each
cell, written under another name, flushed to the disk and renamed: it is there whole, or not at all. Whoever makes cells
holds `lock`. A cell counts as made if its file is whole and has the key that the sweep gives it.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hush_common.errors import OptionError
from hush_common.files import FileLock, replace_file
from hush_simulations.sweeps.cell_file import MadeCell, Versions, decode, encode
from hush_simulations.sweeps.grid import canonical
from hush_simulations.sweeps.plan import FORMAT, CellWork, Sweep

__all__ = ["Directory", "State", "States", "told", "versions_here"]

_SWEEP, _CELLS, _LOCK = "sweep.json", "cells", "lock"
_OPTION = "--out"

State = Literal["made", "missing", "damaged", "of another key"]
"""Of a cell; the last where its file was made of something else."""


@dataclass(frozen=True, slots=True)
class States:
    """The states of all cells.

    Args:
        by_cell: in the order of the grid.
        busy: whether somebody is making cells.
    """

    by_cell: tuple[State, ...]
    busy: bool

    def counts(self) -> dict[str, int]:
        """How many cells there are of each state that there is."""
        found = Counter(self.by_cell)
        return {state: found[state] for state in get_args(State) if found[state]}


def versions_here() -> Versions:
    """What makes cells here."""
    return Versions(hush=version("hush-ldp"), numpy=np.__version__)


class Directory:
    """A directory, which may not be there yet.

    Args:
        path: of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def opened(self, sweep: Sweep, *, resume: bool) -> Iterator[None]:
        """Have it for this sweep and nobody else; it is made if need be.

        Raises:
            OptionError: it is of another sweep, cannot be written, or somebody else is at work in it.
        """
        with told(self.path):
            (self.path / _CELLS).mkdir(parents=True, exist_ok=True)
            lock = FileLock.take(self.path / _LOCK)
        if lock is None:
            raise OptionError(_OPTION, f"{self.path} is in use: another sweep is at work in it; wait, or name another")
        try:
            self._begin(sweep, resume=resume)
            for draft in (self.path / _CELLS).glob(".*"):  # of one that was killed
                with suppress(OSError):
                    draft.unlink()
            yield
        finally:
            lock.release()

    def is_busy(self) -> bool:
        """Whether somebody is making cells."""
        if not (self.path / _LOCK).exists():
            return False
        lock = FileLock.take(self.path / _LOCK)
        if lock is None:
            return True
        lock.release()
        return False

    def identity(self) -> dict[str, object] | None:
        """Which sweep it is of; None where there is none.

        Raises:
            OptionError: `sweep.json` is damaged, or of another format.
        """
        file = self.path / _SWEEP
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(_OPTION, f"{file} cannot be read; name another directory") from error
        try:
            found = json.loads(text)
            form, identity = found["format"], found["sweep"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise OptionError(_OPTION, f"{file} is damaged; name another directory, or delete this one") from error
        if form != FORMAT:
            raise OptionError(_OPTION, f"{self.path} is of format {form}, this hush writes {FORMAT}; name another")
        return dict(identity)

    def _begin(self, sweep: Sweep, *, resume: bool) -> None:
        if self.identity() is None:
            with told(self.path):
                replace_file(self.path / _SWEEP, _document(sweep.identity()))
        elif not resume:
            raise OptionError(_OPTION, f"{self.path} has a sweep already; name another directory, or resume it")
        self.check(sweep)

    def check(self, sweep: Sweep) -> None:
        """See that it is of this sweep.

        Raises:
            OptionError: it is of another one; what differs is named.
        """
        before, now = self.identity() or {}, json.loads(canonical(sweep.identity()))
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if differing:
            raise OptionError(_OPTION, f"{self.path} is of another sweep: {_differences(before, now, differing)}")

    def keep(self, work: CellWork, made: MadeCell) -> None:
        """Write the file of a cell.

        Raises:
            OptionError: it cannot be written; nothing is left of it.
        """
        with told(self.path):
            replace_file(self._file(work), encode(made))

    def made(self, work: CellWork) -> MadeCell | None:
        """A cell that is made; None where it has to be made."""
        state, found = self._state(work)
        return found if state == "made" else None

    def states(self, works: Sequence[CellWork]) -> States:
        """Of every cell."""
        return States(tuple(self._state(work)[0] for work in works), self.is_busy())

    def _state(self, work: CellWork) -> tuple[State, MadeCell | None]:
        try:
            content = self._file(work).read_bytes()
        except FileNotFoundError:
            return "missing", None
        except OSError:
            return "damaged", None
        found = decode(content)
        if found is None:
            return "damaged", None
        fits = found.key == work.key and found.seed == work.seed
        return ("made", found) if fits else ("of another key", None)

    def _file(self, work: CellWork) -> Path:
        return self.path / _CELLS / f"{work.number:06d}.json"


def _document(identity: Mapping[str, object]) -> bytes:
    plain = json.loads(canonical(identity))
    return (json.dumps({"format": FORMAT, "sweep": plain}, indent=1, ensure_ascii=False) + "\n").encode()


def _differences(before: Mapping[str, object], now: Mapping[str, object], names: Sequence[str]) -> str:
    said = [f"{name} is {_said(before.get(name))} there and {_said(now.get(name))} here" for name in names]
    return f"{'; '.join(said)}; name another directory, or ask for what is there"


def _said(value: object) -> str:
    if value is None:
        return "missing"
    text = canonical(value)
    return text if len(text) <= 60 else "another"  # noqa: PLR2004 - what a line has room for


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what the system complains about into one line with a remedy."""
    try:
        yield
    except FileExistsError:
        raise OptionError(_OPTION, f"{path} is a file; name a directory") from None
    except OSError as error:
        remedy = "make room or name another; the cells that are made stay, and the same command goes on"
        raise OptionError(_OPTION, f"{path} cannot be written ({error.strerror or error}); {remedy}") from error
