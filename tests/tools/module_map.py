"""Write the module map of docs/architecture.md: each module with the first sentence of its docstring.

python tests/tools/module_map.py
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("common", "client", "aggregator", "simulations")


def modules() -> Iterator[tuple[Path, str]]:
    """Every module of the product, relative to the repository, with the first sentence of what it says of itself."""
    for folder in FOLDERS:
        for path in sorted(
            (ROOT / folder).rglob("*.py"), key=lambda path: (path.parent, path.stem != "__init__", path)
        ):
            if "ports" not in path.parts:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                text = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
                yield path.relative_to(ROOT), text


def module_map() -> str:
    """The map as Markdown: a section for each folder, a line for each module."""
    lines: list[str] = []
    folder = None
    for path, text in modules():
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"### {folder.as_posix()}", ""]
        name = text if path.name == "__init__.py" else f"- `{path.stem}`: {text}"
        lines += [name, ""] if path.name == "__init__.py" else [name]
    return "\n".join(lines).strip() + "\n"


def write() -> None:
    """Put the map in its place: from the first folder's heading to the end of the document."""
    document = ROOT / "docs" / "architecture.md"
    text = document.read_text(encoding="utf-8")
    before, mark, _ = text.partition(f"### {FOLDERS[0]}/")
    if not mark:
        raise SystemExit(f"{document.name} has no module map to replace")
    document.write_text(before + module_map(), encoding="utf-8")


if __name__ == "__main__":
    write()
