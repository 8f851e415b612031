"""Write the golden screens anew, for whoever changed one on purpose: `python tests/tools/screens.py`. Look at each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from screens import GOLDEN, GOLDEN_WIDTH, SCREENS, screen


def main() -> None:
    """One file for each command."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for path in GOLDEN.iterdir():
        path.unlink()
    for name in SCREENS:
        (GOLDEN / f"{name}.txt").write_text(screen(name, GOLDEN_WIDTH), encoding="utf-8")
    print(f"{len(SCREENS)} screens in {GOLDEN}")


if __name__ == "__main__":
    main()
