"""The environment of the templates: assets, and filters for text that strangers wrote.

It has no part of the web framework, so that `hush poll` starts without one.
"""

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from types import MappingProxyType

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hush_aggregator.publish.explain import certainty
from hush_aggregator.web.page.figures import FAILURES, band_of, meaning, name_round, name_time
from hush_aggregator.web.page.numbers import unbroken
from hush_common.epsilon import decimal_text
from hush_common.formatting import significant, whole

ASSETS = "/assets/"
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
LONGEST = 500
"""Most characters of one text: as long as a title may be."""
_MARKS = 6  # combining marks on one letter: as many as any script needs, and no tower over the next line
_ISOLATED = Markup("<bdi>"), Markup("</bdi>")
_HIDDEN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that a page loads. Its address changes with its bytes, so that browsers may cache it forever."""

    body: bytes
    media_type: str
    address: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the assets, by the names of their files."""
    found = {}
    for one in files(__package__).joinpath("assets").iterdir():
        stem, _, kind = one.name.rpartition(".")
        if kind in _TYPES:
            body = one.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            found[one.name] = Asset(body, _TYPES[kind], f"{ASSETS}{stem}.{digest}.{kind}")
    return MappingProxyType(found)


def sanitize(text: str, longest: int = LONGEST) -> str:
    """Return text of the author of a task without what could overwrite its neighbours.

    Control characters, direction marks, lone surrogates and line separators become a replacement character; a letter
    keeps six combining marks; text of more than `longest` characters ends in an ellipsis.
    """
    if text.isascii() and text.isprintable() and len(text) <= longest:
        return text  # as most are
    kept: list[str] = []
    marks = 0
    for one in text[:longest]:
        marks = marks + 1 if unicodedata.category(one) in {"Mn", "Me"} else 0
        if marks <= _MARKS:
            kept.append(one if one.isprintable() or one == " " else _HIDDEN)
    shown = "".join(kept)
    return shown if len(text) <= longest else f"{shown}…"


def untrusted(text: str, longest: int = LONGEST) -> Markup:
    """Return text of the author of a task as markup: sanitized, escaped, and with its direction isolated."""
    return _ISOLATED[0] + sanitize(text, longest) + _ISOLATED[1]


def _moment(time: datetime) -> Markup:
    utc = time.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(utc.isoformat(timespec="seconds"), name_time(utc))


def template_environment(*packages: str) -> Environment:
    """Return an environment with the templates of the pages, and before them those of other packages.

    Markup is escaped unless a filter or a template made it, and an unknown name is an error.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, __package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "assets": {name: asset.address for name, asset in assets().items()},
        "version": version("hush-ldp"),
    }
    made.filters |= {
        "band": band_of,
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "decimal": decimal_text,
        "failure": lambda why: FAILURES.get(why, why),
        "machine": lambda value: repr(float(value)),
        "meaning": meaning,
        "moment": _moment,
        "round_name": name_round,
        "points": lambda points: " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "px": lambda length: f"{round(length, 2):g}",
        "sanitize": sanitize,
        "significant": significant,
        "sure": certainty,
        "unbroken": unbroken,
        "untrusted": untrusted,
        "whole": whole,
    }
    return made


ENVIRONMENT: Environment = template_environment()
"""The templates of the service."""
