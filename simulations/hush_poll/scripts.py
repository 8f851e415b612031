"""The scripts that a phone gets: the JavaScript package of hush, and the page's own. Their hash is published."""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from hush_client.browser import browser_modules


@cache
def scripts() -> Mapping[str, bytes]:
    """Return the scripts by their names below `js/`."""
    found = {f"hush/{name}": path.read_bytes() for name, path in browser_modules().items()}
    found["poll.js"] = files(__package__).joinpath("assets", "poll.js").read_bytes()
    return MappingProxyType(dict(sorted(found.items())))


def listing() -> bytes:
    """Return the scripts as `sha256sum` lists them."""
    lines = (f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in scripts().items())
    return "".join(lines).encode()


def digest() -> str:
    """Return the SHA-256 of the listing: another one if a byte of a script is another one."""
    return hashlib.sha256(listing()).hexdigest()
