"""Run a chapter, and print what its cells show on a terminal."""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hush_common.terminal import Column, Renderable, Row, Sentence, Table
from hush_tour.contents import Chapter
from hush_tour.prose import Plot, Prose

if TYPE_CHECKING:
    from marimo import App


_EMPHASIS = re.compile(r"(?<![*\w])\*{1,2}(?=\S)(.+?)(?<=\S)\*{1,2}(?![*\w])")


def notebook(chapter: Chapter) -> "App":
    """Load the notebook of a chapter."""
    spec = importlib.util.spec_from_file_location(f"hush_tour_{chapter.name}", chapter.path)
    if spec is None or spec.loader is None:  # pragma: no cover - a path that ends in .py has both
        raise ImportError(f"{chapter.path} is not a module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: App = module.app
    return app


def run(chapter: Chapter) -> tuple[list[Prose | Plot], dict[str, object]]:
    """Return what the cells show, in order, and every name that they define."""
    outputs, names = notebook(chapter).run()
    return [output for output in outputs if isinstance(output, Prose | Plot)], dict(names)


def blocks(shown: Sequence[Prose | Plot]) -> Iterator[Renderable]:
    """Yield paragraphs, tables and the descriptions of pictures, for a terminal."""
    for one in shown:
        if isinstance(one, Plot):
            yield Sentence(f"[Figure: {one.shows}]", "dim", indent=0)
            yield Sentence("")
            continue
        for block in one.markdown.split("\n\n"):
            yield _block(block)
            yield Sentence("")


def _block(block: str) -> Renderable:
    if "\n|---" in block:
        cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.split("\n")]
        titles, _, *rows = [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]
        return Table([Column(title) for title in titles], [Row(row) for row in rows])
    bare = _EMPHASIS.sub(r"\1", " ".join(block.split()))
    if bare.startswith("#"):
        return Sentence(bare.lstrip("# "), "bold", indent=0)
    return Sentence(bare, indent=0)
