"""Writes docs/lecture.md as slides in one HTML file: `python docs/slides.py FILE`, or `make slides`."""

import base64
import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt

DOCS = Path(__file__).resolve().parent
_IMAGE = re.compile(r'src="(images/[\w.-]+)"')
_GUIDE = re.compile(r'<a href="[\w.-]+\.md[^"]*">([^<]*)</a>')
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #fff; --ink: #22303c; --line: #c8d0d6; --link: #1c68a3; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #161c22; --ink: #e3e9ee; --line: #44515d; --link: #7ab8e8; }} }}
html {{ scroll-snap-type: y mandatory; background: var(--ground); color: var(--ink); }}
body {{ margin: 0; font: clamp(1.05rem, 2.9vmin + .4rem, 2.4rem)/1.45 system-ui, sans-serif; }}
section {{ box-sizing: border-box; min-height: 100vh; padding: 5vmin 8vw; scroll-snap-align: start; position: relative;
  display: flex; flex-direction: column; justify-content: center; align-items: flex-start; gap: .6em; }}
section::after {{ content: attr(data-number); position: absolute; right: 3vw; bottom: 3vmin; opacity: .6;
  font-size: .7em; }}
section > * {{ margin: 0; max-width: 100%; }}
h1, h2 {{ line-height: 1.15; font-size: 1.7em; letter-spacing: -.015em; }}
img {{ max-height: 45vh; max-width: 84vw; background: #fff; border-radius: 8px; align-self: center; }}
h2 + p:only-of-type > img {{ max-height: 78vh; }}
p:has(img) {{ align-self: center; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .25em .9em; border-bottom: 1px solid var(--line); text-align: left; }}
code {{ font-size: .9em; }} a {{ color: var(--link); }}
@media print {{ section {{ break-after: page; height: 100vh; }} }}
</style>
{slides}
<script>
const slides = [...document.querySelectorAll("section")];
const here = () => slides.findIndex((one) => one.getBoundingClientRect().bottom > innerHeight / 2);
addEventListener("keydown", (event) => {{
  const by = {{ ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }}[event.key];
  if (!by) return;
  event.preventDefault();
  slides[Math.min(Math.max(here() + by, 0), slides.length - 1)].scrollIntoView();
}});
</script>
</html>
"""


def slides_of(markdown: str) -> str:
    """Return the page of a text whose slides are separated by `---`, with its pictures in it and no links to guides."""
    render = MarkdownIt("commonmark").enable("table").render
    parts = [render(part) for part in re.split(r"^---$", markdown, flags=re.MULTILINE)]
    sections = [f'<section data-number="{number}">\n{part}</section>' for number, part in enumerate(parts, 1)]
    body = _IMAGE.sub(lambda found: f'src="data:image/png;base64,{_encoded(found[1])}"', "\n".join(sections))
    body = _GUIDE.sub(r"\1", body)
    title = next(line.removeprefix("# ") for line in markdown.splitlines() if line.startswith("# "))
    return _PAGE.format(title=title, slides=body)


def _encoded(image: str) -> str:
    return base64.b64encode((DOCS / image).read_bytes()).decode("ascii")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(slides_of((DOCS / "lecture.md").read_text(encoding="utf-8")), encoding="utf-8")
