"""The picture in docs/laboratory.md is drawn from the sweep that it says, by the code of today."""

import pytest
from tools.laboratory_picture import PICTURE, fresh
from tools.readme_picture import drawn, shown


def test_the_picture_shows_that_narrow_bounds_keep_the_error_above_the_line_of_the_noise() -> None:
    kept = drawn(PICTURE)
    assert isinstance(kept["texts"], list)
    assert {"164 to 176 cm", "120 to 220 cm", "theory", "ε", "error (rms), cm"} <= set(kept["texts"])
    assert PICTURE.stat().st_size < 60_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_text_and_figure_in_the_picture_is_that_of_a_sweep_made_now() -> None:
    assert drawn(PICTURE) == shown(fresh().figure("error")), "run python tests/tools/laboratory_picture.py, and look"
