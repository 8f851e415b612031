"""README.md with all that is known of its digits: what is recomputed, and what is only quoted.

Its blocks of code are run, by `tests/documents/test_readme.py`; their digits are pinned in their order.
"""

import re
from fractions import Fraction
from functools import cache

from documented.figures import Section, computed, given
from readme import README, blocks
from tools.readme_picture import fresh

from hush_common.epsilon import at_most_sure
from hush_common.formatting import percent_at_most, whole
from hush_common.rng import REPORT_ID_BYTES
from hush_simulations.engines.experiment import MOST_OVER_MQTT

__all__ = ["PINNED", "page"]

QUOTES = {
    "address of a file or a page": re.compile(r"\]\([^)]*\)|`[^`]*`"),
    "name": re.compile(r"MQTT 3\.1\.1|Apache-2\.0"),
    "limit of another program": re.compile(r"(?<=keeps only )1000(?= messages)"),
}
PINNED = {
    "address of a file or a page": "1270018080",
    "name": "20",
    "limit of another program": "1000",
}


@cache
def _claims() -> tuple[str, ...]:
    run = fresh()
    n, epsilon = run.result.n, run.task.epsilon
    needed = re.search(r'requires-python = ">=([0-9.]+)"', README.with_name("pyproject.toml").read_text("utf-8"))
    assert needed
    sure = percent_at_most(at_most_sure(Fraction(1)))
    return (
        f"![{computed(n)} heights, the reports that the aggregator received",
        f"*{computed(n)} simulated people, ε = {given(epsilon)}. Above",
        f"One report says almost nothing; {computed(n)} of them show the mean.",
        f"With Python ≥ {given(needed[1])}, in a clone",
        (
            "Take an observer who was 50/50 about a person's answer. "
            f"After seeing the report, at ε = {given(1)}, the observer is at most {computed(sure)} sure of it"
        ),
        f"Up to {computed(whole(MOST_OVER_MQTT))} devices run the real client over MQTT",
        f"under {given(10)} MB in all, without numpy",  # weighed by tests/install/test_install.py
        f"deduplicated by a random {computed(8 * REPORT_ID_BYTES)}-bit id",
    )


def page(text: str | None = None) -> Section:
    """All of it as one section, without its blocks."""
    document = README.read_text(encoding="utf-8") if text is None else text
    for block in blocks(document):
        document = document.replace(f"```{block.language}\n{block.text}```", "")
    return Section("README", " ".join(document.split()), _claims(), QUOTES, PINNED)
