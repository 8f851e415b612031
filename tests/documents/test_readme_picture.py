"""The picture in README.md is the one that the code of today draws, of a run of today."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import __version__
from matplotlib.image import imread
from readme import README
from tools.readme_picture import PICTURE, drawn, fresh, save, shown

from hush import Run

REMEDY = "run python tests/tools/readme_picture.py, and look at the picture"


@pytest.fixture(scope="module")
def run() -> Run:
    return fresh()


def test_every_text_and_figure_in_the_picture_is_that_of_a_fresh_run(run: Run) -> None:
    assert drawn() == shown(run.figure()), REMEDY


@pytest.mark.large
def test_the_picture_is_drawn_from_what_it_says(run: Run, tmp_path: Path) -> None:
    """Pixel by pixel, where the library that drew it is the same."""
    save(run, tmp_path / "again.png")
    if f"Matplotlib version{__version__}".encode() not in PICTURE.read_bytes():
        pytest.skip("another matplotlib drew the picture")
    assert np.array_equal(imread(PICTURE), imread(tmp_path / "again.png")), REMEDY


def test_another_run_has_another_picture(run: Run) -> None:
    other = shown(run.figure())
    assert isinstance(other["texts"], list)
    assert {**other, "texts": [*other["texts"], "1"]} != drawn()


def test_what_the_readme_says_of_the_picture_is_in_it(run: Run) -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"{run.result.n} simulated people, ε = {run.task.epsilon}. Above: their heights" in text
    assert "](docs/images/heights.png)" in text
