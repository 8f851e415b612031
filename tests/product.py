"""The product as its distribution has it: the packages, and the files in them."""

import tomllib
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "product_files"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["packages"]


def product_files() -> dict[str, Path]:
    """Every module of the product, by its path from the folder of its package on: `hush_common/task.py`."""
    return {
        file.relative_to(ROOT / Path(place).parent).as_posix(): file
        for place in PACKAGES
        for file in sorted((ROOT / place).rglob("*.py"))
    }
