"""The picture of docs/laboratory.md: `python tests/tools/laboratory_picture.py` draws it by the code of today.

What stands in the picture is kept in it as text (the chunk `Comment` of the PNG), so that a test can compare it.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.readme_picture import shown

from hush import SweepResult, sweep

__all__ = ["PICTURE", "fresh", "save"]

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "sweep-bounds.png"
_SMALL = 110  # dots an inch


def fresh() -> SweepResult:
    """The sweep that comes with hush, made now: half a minute."""
    with tempfile.TemporaryDirectory() as directory:
        return sweep("bounds", out=directory)


def save(result: SweepResult, path: Path) -> None:
    figure = result.figure("error")
    figure.savefig(path, dpi=_SMALL, metadata={"Comment": json.dumps(shown(figure))})


if __name__ == "__main__":
    save(fresh(), PICTURE)
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size} bytes\n")
