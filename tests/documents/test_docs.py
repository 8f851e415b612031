"""The pages that `make docs` builds: whole, and without a warning."""

import os
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
    assert "Who sees what" in (tmp_path / "security.html").read_text(encoding="utf-8")
