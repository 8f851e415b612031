"""Export chapters as Markdown, with pictures for light and dark backgrounds, and as Jupyter notebooks."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from hush_common.child_python import python_command
from hush_simulations.display.style import DARK, LIGHT
from hush_tour.contents import MARIMO, Chapter
from hush_tour.prose import Plot, Prose


def write_page(chapter: Chapter, shown: Sequence[Prose | Plot], folder: Path) -> Path:
    """Write a chapter as MyST Markdown, with its pictures in the same folder."""
    blocks: list[str] = []
    for number, one in enumerate(shown):
        if isinstance(one, Prose):
            blocks.append(one.markdown)
            continue
        for name, palette in (("light", LIGHT), ("dark", DARK)):
            picture = folder / f"{chapter.name}-{number}-{name}.png"
            picture.write_bytes(one.png(palette))
            blocks.append(f"```{{image}} {picture.name}\n:alt: {one.shows}\n:class: only-{name}\n```")
    page = folder / f"{chapter.name}.md"
    page.write_text("---\norphan: true\n---\n\n" + "\n\n".join(blocks) + "\n", encoding="utf-8")
    return page


def write_notebook(chapter: Chapter, folder: Path) -> Path:
    """Write a chapter as a Jupyter notebook, with its outputs.

    Raises:
        subprocess.CalledProcessError: a cell fails; marimo has printed which.
    """
    path = folder / f"{chapter.name}.ipynb"
    options = ["--include-outputs", "--force", "--output", str(path)]
    command = python_command(MARIMO, "--quiet", "export", "ipynb", str(chapter.path), *options)
    subprocess.run(command, check=True)  # noqa: S603 - our own interpreter and file
    return path
