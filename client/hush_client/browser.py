"""The JavaScript modules that make a web page a device, for a server that sends them to browsers."""

from pathlib import Path

__all__ = ["browser_modules"]

_PLACES = (Path(__file__).parent / "js", Path(__file__).parent.parent / "ports" / "js" / "src")
_NODE = ("node.js",)


def browser_modules() -> dict[str, Path]:
    """Return the modules by name: a page imports `index.js`, and that imports the others from the same folder.

    They are those of the package `hush-ldp` for browsers and node (docs/ports.md). A wheel has a copy of them next to
    this file; in a clone they are in `client/ports/js/src`.
    """
    place = next(place for place in _PLACES if place.is_dir())
    return {file.name: file for file in sorted(place.glob("*.js")) if file.name not in _NODE}
