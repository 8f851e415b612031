"""The figures between the markers of README.md and docs/*.md are those of today."""

from tools.figures import outdated


def test_the_documents_have_the_figures_of_today() -> None:
    assert outdated() == [], "run python tests/tools/figures.py"
