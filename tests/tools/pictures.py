"""Pictures of README.md and docs/laboratory.md: `python tests/tools/pictures.py` draws them by the code of today.

People and noise follow from a seed, so each run draws the same. It takes half a minute.
"""

import tempfile
from pathlib import Path

import hush

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SEED = 500
"""Of people whose estimate is neither luckier nor unluckier than most."""

if __name__ == "__main__":
    run = hush.simulate("heights", engine="memory", seed=SEED, deterministic_noise=True)
    run.figure().savefig(IMAGES / "heights.png")
    with tempfile.TemporaryDirectory() as directory:
        hush.sweep("bounds", out=directory).figure("error").savefig(IMAGES / "sweep-bounds.png", dpi=110)
