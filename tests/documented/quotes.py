# ruff: noqa: RUF001 - sentences of the document
"""The digits of docs/statistics.md that nothing recomputes, by class, and the places where they are pinned."""

import json
import re
from pathlib import Path

__all__ = ["PINNED", "QUOTES", "pinned"]

PINNED = Path(__file__).with_name("pinned.json")

QUOTES = {
    "number of a section or a step": re.compile(r"(?:(?<=^## )\d+(?=\.)|(?<= )[1-9](?=\. \*))"),
    "reference to a section": re.compile(r"(?<=[Ss]ection )\d+"),
    "year, volume or number of a source": re.compile(
        r"\b(?:1[89]|20)\d\d\b|^## Sources.*|CS208|(?<=Abramowitz and Stegun )[\d.]+"
    ),
    "name of a symbol": re.compile(
        r"(?<![\d)])[pλHDMGκμΔbx]′?[₀₁₂₃₄]|ℓ₁|‖₁|(?<=\()[Dμ]₁|D₂|docs/\S+|#\d\S*|`[^` ]*\d[^` ]*`"
    ),
    "exponent": re.compile(r"(?<=[A-Za-zα-ωΔσλ)|])[²³⁴]|_c[²³⁴]|(?<=κ₂)²"),
    "text of a source that is cited": re.compile(r"## Errors.*"),
    "formula": re.compile(r"\{0,|\d(?=[φz])|[^ ]*[=<>≤≥/·√^(+−][^ ]*|(?<![\d.])[01½](?=[] ,;:|)}]|\.(?!\d))"),
    "code of the example": re.compile(r"```python.*?```"),
}
"""Patterns of what is quoted. A digit goes to the first class that has it, after all claims."""


def pinned() -> dict[str, dict[str, str]]:
    """The digits of each class in their order, by section."""
    found: dict[str, dict[str, str]] = json.loads(PINNED.read_text(encoding="utf-8")) if PINNED.exists() else {}
    return found
