"""Which digits of docs/statistics.md are recomputed, and which are only quoted.

python tests/tools/figures.py          how many of each class, and every quoted one with what stands around it
python tests/tools/figures.py --pin    after a change of the text: pin the digits that are quoted
"""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from documented.figures import COMPUTED, GIVEN, WORDS, Section
from documented.quotes import PINNED, QUOTES
from documented.statistics_page import NAMES, section

AROUND = 12


def main(*, pin: bool) -> None:
    if pin:
        PINNED.write_text(json.dumps({name: quoted(section(name)) for name in NAMES}, indent=1) + "\n")
        return
    total: Counter[str] = Counter()
    for one in map(section, NAMES):
        labels = one.ledger().labels
        total.update(labels.values())
        for name in QUOTES:
            places = [place for place, label in labels.items() if label == name]
            shown = "  ".join(one.text[max(0, place - AROUND) : place + AROUND] for place in sorted(places))
            if places:
                print(f"§{one.name}, {name}: {shown}")
    for name in (COMPUTED, GIVEN, WORDS, *QUOTES):
        print(f"{total[name]:5d} digits: {name}")


def quoted(one: Section) -> dict[str, str]:
    """The digits of each class in their order."""
    labels = one.ledger().labels
    return {
        name: "".join(one.text[place] for place in sorted(labels) if labels[place] == name)
        for name in QUOTES
        if name in labels.values()
    }


if __name__ == "__main__":
    main(pin="--pin" in sys.argv)
