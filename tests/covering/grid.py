"""The grid of docs/coverage.md: `python tests/tools/figures.py coverage` computes it and writes the tables."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from covering.cells import CONFIDENCES, EPSILONS, Cell
from covering.coins import bits, categories, enrolled_bits, two_coins, two_levels
from covering.levels import bounded, enrolled_levels
from covering.numbers import OFFERED, enrolled_laplace, laplace, laplace_offers
from covering.pooled import corner, enrolled_pooled, pooled
from covering.searched import KINDS, searched
from covering.vectors import vector
from covering.watched import watched_bits, watched_laplace, watched_levels

import hush_aggregator.estimate

__all__ = ["CASES", "all_cells", "shown"]

KEPT = Path(__file__).with_name(".cells.jsonl")
"""Finished cases."""

Case = Callable[[float], Iterator[Cell]]

CASES: dict[str, Case] = {
    **{f"laplace {e}": partial(laplace, e) for e in EPSILONS},
    **{f"enrolled laplace {e}": partial(enrolled_laplace, e) for e in ("0.5", "2", "8", "16")},
    **{f"watched laplace {e}": partial(watched_laplace, e) for e in ("1", "8")},
    **{f"offers laplace {row}": partial(laplace_offers, row) for row in OFFERED},
    **{f"bits {e}": partial(bits, e) for e in EPSILONS},
    **{f"enrolled bits {e}": partial(enrolled_bits, e) for e in ("1", "4", "16")},
    **{f"watched bits {e}": partial(watched_bits, e) for e in ("0.5", "4")},
    **{f"coins {t} {y}": partial(two_coins, t, y) for t, y in (("0.5", "0.5"), ("0.5", "0.1"), ("0.9", "0.02"))},
    **{f"levels {e}": partial(two_levels, e) for e in ("0.1", "0.5", "1")},
    **{f"levels {e}": partial(bounded, "multilevel", e) for e in ("2", "4", "8", "16")},
    **{f"enrolled levels {e}": partial(enrolled_levels, "multilevel", e) for e in ("2", "4")},
    **{f"watched levels {e}": partial(watched_levels, e) for e in ("1", "4")},
    **{f"offers levels {row}": partial(pooled, "number", row) for row in OFFERED},
    **{
        f"corner {kind} {first} {second}": partial(corner, kind, (first, second))
        for kind, first, second in (
            ("bit", "0.1", "10"),
            ("number", "0.04", "4"),
            ("category", "0.1", "8"),
        )
    },
    "enrolled offers levels": partial(enrolled_pooled, "number", "0.5 or 2, half of each"),
    "enrolled offers category": partial(enrolled_pooled, "category", "0.5 or 2, half of each"),
    **{f"table {e}": partial(bounded, "table", e) for e in ("1", "2", "4")},
    **{f"categories 5 {e}": partial(categories, e, 5, joint=False) for e in EPSILONS},
    **{f"joint categories 5 {e}": partial(categories, e, 5, joint=True) for e in EPSILONS},
    **{f"categories 20 {e}": partial(categories, e, 20, joint=False) for e in ("1", "4", "16")},
    **{f"categories 1024 {e}": partial(categories, e, 1024, joint=False) for e in ("1", "8")},
    **{f"offers category {row}": partial(pooled, "category", row) for row in OFFERED},
    **{f"vector {e}": partial(vector, e, joint=False) for e in ("0.5", "1", "2", "4", "8")},
    **{f"joint vector {e}": partial(vector, e, joint=True) for e in ("1", "4")},
    **{f"search {kind}": partial(searched, kind) for kind in KINDS},
}
"""What gives the cells of one confidence."""


def all_cells() -> list[Cell]:
    """Every cell of the grid: half an hour. Finished cases are kept, so that a run that was stopped goes on."""
    return [cell for name in CASES for confidence in CONFIDENCES for cell in _cells(name, confidence)]


def shown(words: Sequence[str]) -> Iterator[str]:
    """The worst cell of each case whose name has these words, as they are found."""
    for name in CASES:
        if all(word in name for word in words):
            for confidence in CONFIDENCES:
                if cells := _cells(name, confidence):
                    least = min(cells, key=lambda cell: cell.margin)
                    where = f"n = {least.n}, {least.target}, {least.method}, {least.values}"
                    yield f"{name} at {confidence}: {len(cells)} cells, {least.margin:+.1f} at {where}"


def _cells(name: str, confidence: float) -> list[Cell]:
    case = f"{name} at {confidence}"
    if case not in _kept():
        cells = list(CASES[name](confidence))
        _kept()[case] = cells
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"code": _code(), "case": case, "cells": list(map(asdict, cells))}) + "\n")
    return _kept()[case]


@cache
def _kept() -> dict[str, list[Cell]]:
    """The cells of the cases that are done, by the code of today."""
    entries = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines()) if KEPT.exists() else ()
    return {entry["case"]: [Cell(**cell) for cell in entry["cells"]] for entry in entries if entry["code"] == _code()}


@cache
def _code() -> str:
    """A fingerprint of the estimators and of this grid."""
    sources = [*Path(hush_aggregator.estimate.__file__).parent.rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    deciding = sorted(path for path in sources if path.name != "tables.py")
    return sha256(b"".join(path.read_bytes() for path in deciding)).hexdigest()[:16]
