"""Figures need no font but the files that come with matplotlib, whatever the list in its cache says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib import get_cachedir, get_data_path
from matplotlib.font_manager import FontManager, fontManager, json_dump

DRAW = """
import sys
import numpy as np
from hush_tour.drawing.heights import of_errors
epsilons = np.array([0.1, 1.0, 10.0])
figure = of_errors([("one", 20.0)] * 4, epsilons, [20 / epsilons] * 4)
for kind in ("png", "svg"):
    figure.savefig(f"{sys.argv[1]}/{kind}.{kind}")
"""


def poisoned(folder: Path, kept: str) -> None:
    """A cache whose list has no font of matplotlib's own: those of the system alone, or none at all."""
    path = folder / f"fontlist-v{FontManager.__version__}.json"
    json_dump(fontManager, path)
    listed = json.loads(path.read_text(encoding="utf-8"))
    own = [font for font in listed["ttflist"] if kept == "system" and Path(font["fname"]).is_absolute()]
    path.write_text(json.dumps({**listed, "ttflist": own, "afmlist": []}), encoding="utf-8")


def drawn(folder: Path, cache: Path, script: str = DRAW) -> subprocess.CompletedProcess[str]:
    """The figure, drawn by a process of its own with this cache."""
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "MPLCONFIGDIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.large
@pytest.mark.parametrize("kept", ["system", "none"])
def test_a_list_of_fonts_without_those_of_matplotlib_changes_no_picture_and_says_nothing(
    tmp_path: Path, kept: str
) -> None:
    cache, usual, other = tmp_path / "cache", tmp_path / "usual", tmp_path / "other"
    for folder in (cache, usual, other):
        folder.mkdir()
    poisoned(cache, kept)
    done = drawn(other, cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert drawn(usual, Path(get_cachedir())).returncode == 0
    assert (other / "png.png").read_bytes() == (usual / "png.png").read_bytes()


def test_without_our_fonts_such_a_list_is_told_on_stderr(tmp_path: Path) -> None:
    """The twin: a figure of matplotlib alone, with labels of a logarithmic axis as matplotlib writes them."""
    poisoned(tmp_path, "system")
    script = (
        "from matplotlib.figure import Figure\nimport sys\nfigure = Figure()\n"
        "figure.subplots().set_xscale('log')\nfigure.savefig(f'{sys.argv[1]}/x.png')"
    )
    assert "findfont" in drawn(tmp_path, tmp_path, script).stderr


def test_the_files_that_are_asked_for_come_with_matplotlib() -> None:
    assert (Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf").is_file()
