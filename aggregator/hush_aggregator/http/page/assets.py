"""Assets: the style sheet, the script and the sign of the page, under addresses that change with them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

__all__ = ["PREFIX", "Asset", "addresses", "assets"]

PREFIX = "/assets/"
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that a page loads.

    Args:
        body: its bytes.
        media_type: what they are.
        address: where it is served; of other bytes it is another one, so that a browser may keep it for ever.
    """

    body: bytes
    media_type: str
    address: str


@cache
def assets() -> Mapping[str, Asset]:
    """All of them, by the name of the file."""
    folder = files(__package__).joinpath("assets")
    found = {}
    for one in folder.iterdir():
        stem, _, kind = one.name.rpartition(".")
        if kind in _TYPES:
            body = one.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            found[one.name] = Asset(body, _TYPES[kind], f"{PREFIX}{stem}.{digest}.{kind}")
    return MappingProxyType(found)


@cache
def addresses() -> Mapping[str, str]:
    """Where each of them is, by the name of the file."""
    return MappingProxyType({name: asset.address for name, asset in assets().items()})
