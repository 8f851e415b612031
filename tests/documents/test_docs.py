"""The pages that `make docs` builds, and the slides of `make slides`."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hush
import hush_aggregator
import hush_client

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 290


@pytest.mark.large
def test_pages_are_built_without_a_warning_and_have_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-W", "--keep-going", "docs", str(tmp_path)]
    environment = os.environ | {"HUSH_TOUR": "titles"}  # test_tour.py runs the chapters, and writes their pages
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((tmp_path / "api").glob("*.html")))
    for package in (hush, hush_client, hush_aggregator):
        for name in set(package.__all__) - {"__version__"}:
            home = getattr(package, name).__module__
            places = {home, home.partition(".")[0], package.__name__}
            assert any(f'id="{place}.{name}"' in pages for place in places), name


def test_the_slides_have_each_part_of_the_lecture_with_its_pictures() -> None:
    lecture = (ROOT / "docs" / "lecture.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "docs" / "slides.py"))["slides_of"](lecture)
    assert page.count("<section ") == lecture.count("\n---\n") + 1
    assert page.count('src="data:image/png;base64,') == lecture.count("](images/") > 0
