"""The coverage of every interval over a grid. `python tests/tools/coverage_grid.py` writes docs/coverage.md.

Finished cases are kept in a file beside this one, so that a run that was stopped goes on where it was. The file knows
of which code it speaks: after a change of the estimators everything is computed again.

    python tests/tools/coverage_grid.py [WORD ...]    only the cases whose names have these words; writes no document
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from covering.cells import CONFIDENCES, EPSILONS, Cell
from covering.coins import bits, categories, enrolled_bits, two_coins, two_levels
from covering.document import document
from covering.levels import bounded, enrolled_levels
from covering.numbers import OFFERED, enrolled_laplace, laplace, laplace_offers
from covering.pooled import corner, enrolled_pooled, pooled
from covering.searched import KINDS, searched
from covering.vectors import vector
from covering.watched import watched_bits, watched_laplace, watched_levels

import hush_aggregator.estimate

TESTS = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name(".coverage_cells.jsonl")
DOCUMENT = TESTS.parent / "docs" / "coverage.md"

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


def code() -> str:
    """A fingerprint of the estimators and of this grid."""
    sources = [*Path(hush_aggregator.estimate.__file__).parent.rglob("*.py"), *(TESTS / "covering").glob("*.py")]
    deciding = sorted(path for path in sources if path.name != "document.py")
    return sha256(b"".join(path.read_bytes() for path in deciding)).hexdigest()[:16]


def kept(fingerprint: str) -> dict[str, tuple[list[Cell], float]]:
    """Cells and seconds of the cases that are done."""
    found: dict[str, tuple[list[Cell], float]] = {}
    if KEPT.exists():
        for line in KEPT.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["code"] == fingerprint:
                found[entry["case"]] = [Cell(**cell) for cell in entry["cells"]], entry["seconds"]
    return found


def main(words: list[str]) -> None:
    fingerprint = code()
    done = kept(fingerprint)
    asked = [name for name in CASES if all(word in name for word in words)]
    for name in asked:
        for confidence in CONFIDENCES:
            key = f"{name} at {confidence}"
            if key not in done:
                start = time.process_time()
                cells = list(CASES[name](confidence))
                done[key] = cells, time.process_time() - start
                with KEPT.open("a", encoding="utf-8") as file:
                    entry = {
                        "code": fingerprint,
                        "case": key,
                        "seconds": done[key][1],
                        "cells": list(map(asdict, cells)),
                    }
                    file.write(json.dumps(entry) + "\n")
            cells, seconds = done[key]
            if cells:
                least = min(cells, key=lambda cell: cell.margin)
                where = f"n = {least.n}, {least.target}, {least.method}, {least.values}"
                print(f"{key}: {len(cells)} cells, {seconds:.1f} s, {least.margin:+.1f} at {where}", flush=True)
    if not words:
        everything = [
            cell for name in CASES for confidence in CONFIDENCES for cell in done[f"{name} at {confidence}"][0]
        ]
        minutes = sum(seconds for _, seconds in done.values()) / 60
        DOCUMENT.write_text(document(everything, f"{minutes:.0f} minutes on one core"), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
