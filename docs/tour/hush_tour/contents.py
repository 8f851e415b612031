"""The chapters of the tour, in order."""

from dataclasses import dataclass
from pathlib import Path

MARIMO = "import runpy; runpy.run_module('marimo', run_name='__main__', alter_sys=True)"
"""The program of marimo, for another Python."""

_FOLDER = Path(__file__).with_name("chapters")


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter about one document.

    Args:
        name: for `hush tour NAME`.
        title: what it is about.
        source: the document.
    """

    name: str
    title: str
    source: str

    @property
    def path(self) -> Path:
        """The notebook."""
        return _FOLDER / f"{self.name}.py"


CHAPTERS = (
    Chapter("heights", "The mean height of people who keep their height", "the notebook on differential privacy"),
    Chapter("mechanism", "Sensitivity, the Laplace mechanism, and the price of not trusting", "the book chapter"),
    Chapter("slides", "A distribution from four sides, and a density ratio one can see", "the slides of CS208"),
    Chapter("notes", "Location, scale, and the proof step by step", "the notes in Spanish"),
    Chapter("lecture", "Coins, risks, and what a delta buys", "the lecture notes"),
)


def chapter(name: str) -> Chapter:
    """Return the chapter with this name, or raise KeyError."""
    return {one.name: one for one in CHAPTERS}[name]
