"""What `make docs` builds: the guides as they are read in the repository, and a reference made of the docstrings."""

import os
import re
from importlib.metadata import version as installed
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from hush_tour.contents import CHAPTERS
from hush_tour.export import write_notebook, write_page
from hush_tour.reading import run

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = {"README": "index", "SECURITY": "security", "CHANGELOG": "changelog", "CONTRIBUTING": "contributing"}
"""Files beside `docs`, and the pages that stand for them here."""
QUOTED, NAME = re.compile(r"(?<!`)`([^`]+)`(?!`)"), re.compile(r"[A-Za-z_][\w.]*")
LINK = re.compile(r"(?<!!)\[(?P<shown>[^\]]+)\]\((?P<target>[^):#\s]+)(?P<anchor>#[^)\s]*)?\)")

project = "hush"
author = "The hush authors"
version = release = installed("hush-ldp")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "py:obj"  # what docstrings have between backticks
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"hush {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False


def _tour(_: Sphinx) -> None:
    """Run the chapters of the tour, and write them as pages; by their titles alone where HUSH_TOUR=titles (tests)."""
    folder = DOCS / "tour"
    folder.mkdir(exist_ok=True)
    for chapter in CHAPTERS:
        if os.environ.get("HUSH_TOUR") == "titles":
            (folder / f"{chapter.name}.md").write_text(f"---\norphan: true\n---\n\n# {chapter.title}\n")
            (folder / f"{chapter.name}.ipynb").write_text("{}")
            continue
        write_page(chapter, run(chapter)[0], folder)
        write_notebook(chapter, folder)


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    """Pages of files beside `docs` have their text; a link to a file that is no page is its bare text."""
    name = next((name for name, other in PAGES.items() if other == page != "index"), None)
    folder = (DOCS / page).parent
    if name is not None:
        source[0], folder = (ROOT / f"{name}.md").read_text(encoding="utf-8"), ROOT

    if page == "tour":  # links that only the built pages have
        shown = (f"[{one.title}](tour/{one.name}.md) ([notebook](tour/{one.name}.ipynb))" for one in CHAPTERS)
        source[0] += "\n## The chapters\n\n" + "\n".join(f"- {one}" for one in shown) + "\n"

    def linked(link: re.Match[str]) -> str:
        path = (folder / link["target"]).resolve()
        inside = path.relative_to(ROOT).with_suffix("").as_posix() if path.is_relative_to(ROOT) else ""
        if path.is_relative_to(DOCS / "tour"):
            return link[0]
        if path.suffix == ".md" and (path.parent == DOCS or inside in PAGES):
            there = os.path.relpath(DOCS / f"{PAGES.get(inside, path.stem)}.md", (DOCS / page).parent)
            return f"[{link['shown']}]({there}{'' if inside == 'README' else link['anchor'] or ''})"
        return link["shown"] if path.exists() else link[0]  # what is not there is Sphinx's to complain of

    source[0] = LINK.sub(linked, source[0])


def _document(_app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """What is between backticks is code or a name; an indented block after a blank line is an example."""
    lines[:] = [QUOTED.sub(lambda text: text[0] if NAME.fullmatch(text[1]) else f"`{text[0]}`", line) for line in lines]
    for place in range(len(lines) - 1, 1, -1):
        if lines[place].startswith("    ") and not lines[place - 1] and lines[place - 2][:1].strip():
            lines[place:place] = ["::", ""]
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # an empty comment: else napoleon takes the words before a colon for a type


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _document, priority=100)  # before the sections of Google's style are read
    app.connect("source-read", _read)
    app.connect("builder-inited", _tour)
    for name in ("acl", "conf", "cron", "regex"):
        app.add_lexer(name, TextLexer)
