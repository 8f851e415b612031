"""The picture of README.md: `python tests/tools/readme_picture.py` draws docs/images/heights.png by the code of today.

The people and their noise follow from a seed, so that whoever draws it again draws the same. What stands in the picture
is kept in it as text (the chunk `Comment` of the PNG), so that a test can compare it with a run of today.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from asked import experiment_of
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from hush import Run
from hush_simulations.commands.simulate import Request
from hush_simulations.engines.live import simulate

__all__ = ["PICTURE", "SEED", "drawn", "fresh", "save", "shown"]

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "heights.png"
SEED = 500
"""Of people whose estimate is neither luckier nor unluckier than most."""


def fresh() -> Run:
    """The run that the picture shows: 500 people, epsilon 1."""
    experiment = experiment_of(Request(engine="memory", seed=SEED, deterministic_noise=True))
    return Run.of(experiment, asyncio.run(simulate(experiment)))


def shown(figure: Figure) -> dict[str, object]:
    """What a person reads in the picture: its texts, the heights of its bars, and the ends of its lines."""
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(Text)]
    bars = [_rounded(bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)) for axes in figure.axes]
    lines = [_rounded(np.ravel(line.get_xydata()) for line in axes.lines) for axes in figure.axes]
    return {"texts": sorted(text for text in texts if text), "bars": bars, "lines": lines}


def _rounded(numbers: Iterable[object]) -> list[list[float]]:
    """To six digits: a last bit is no change that a person could see."""
    return [[float(f"{number:.6g}") for number in np.atleast_1d(one)] for one in numbers]  # type: ignore[call-overload]


def drawn(path: Path = PICTURE) -> dict[str, object]:
    """What the picture in a file says that it shows."""
    from PIL import Image  # noqa: PLC0415 - matplotlib brings it

    with Image.open(path) as image:
        found: dict[str, object] = json.loads(str(image.info["Comment"]))
    return found


def save(run: Run, path: Path) -> None:
    figure = run.figure()
    figure.savefig(path, metadata={"Comment": json.dumps(shown(figure))})


if __name__ == "__main__":
    save(fresh(), PICTURE)
    sys.stdout.write(f"{PICTURE}: {imread(PICTURE).shape}\n")
