"""The file of a cell: its key and its rows, with a digest of both, so that a file cut at any byte is not believed.

A file is what `encode` makes of what `decode` finds in it, byte for byte, or it is damaged.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from pydantic import BaseModel, ConfigDict, ValidationError

from hush_simulations.sweeps.grid import canonical
from hush_simulations.sweeps.row import SweepRow

__all__ = ["MadeCell", "Versions", "decode", "encode"]


@dataclass(frozen=True, slots=True)
class Versions:
    """What made a cell."""

    hush: str
    numpy: str


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cell: dict[str, object]
    sha256: str


class _Cell(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    seed: int
    versions: Versions
    rows: list[SweepRow]


@dataclass(frozen=True, slots=True)
class MadeCell:
    """A cell that was made.

    Args:
        key: what it was made of.
        seed: of the sweep.
        versions: what made it.
        rows: what came of it.
    """

    key: str
    seed: int
    versions: Versions
    rows: tuple[SweepRow, ...]


def encode(made: MadeCell) -> bytes:
    """The content of a file."""
    names = [one.name for one in fields(SweepRow)]
    cell = {
        "key": made.key,
        "seed": made.seed,
        "versions": asdict(made.versions),
        "rows": [{name: _plain(getattr(row, name)) for name in names} for row in made.rows],
    }
    digest = hashlib.sha256(canonical(cell).encode()).hexdigest()
    return (json.dumps({"cell": cell, "sha256": digest}, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def decode(content: bytes) -> MadeCell | None:
    """What a file says; None where it is damaged."""
    try:
        found = _File.model_validate(json.loads(content))
        cell = _Cell.model_validate(found.cell)
        made = MadeCell(cell.key, cell.seed, cell.versions, tuple(cell.rows))
        return made if encode(made) == content else None
    except (ValueError, ValidationError, RecursionError):
        return None


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
