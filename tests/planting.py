"""Estimates that fail, or take for ever, planted into `hush serve` from outside: its code knows nothing of them."""

import json
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Plants"]

# Imported by each Python that finds it, before anything else: by the service, and by what the service starts.
_SITE = """
import json, math, os, time
from dataclasses import replace
import hush_aggregator.estimate as package

_real, _kinds = package.estimate, json.loads(os.environ["HUSH_PLANTED"])

def planted(task, tally, confidence):
    kind = _kinds.get(task.id) if tally.n else None
    if kind is None:
        return _real(task, tally, confidence)
    with open(os.environ["HUSH_ATTEMPTS"], "a") as attempts:
        attempts.write(f"{task.id} {tally.n}\\n")
    made = _real(task, tally, confidence)
    if kind == "raises":
        raise RuntimeError(f"planted, the sums are {tally.moments}")
    if kind == "dies":
        os._exit(7)
    if kind == "is-no-number":
        return replace(made, parts=(replace(made.single, mean=math.nan),))
    if kind == "has-no-interval":
        return replace(made, parts=(replace(made.single, intervals={**made.intervals, "population": (0.0, math.nan)}),))
    end = time.monotonic() + float(kind.partition(" ")[2])
    while kind.startswith("spins") and time.monotonic() < end:
        sum(range(1000))
    while kind.startswith("clings") and time.monotonic() < end:
        3 ** 3_000_000  # one step of C, in which no other thread runs
    while time.monotonic() < end:
        time.sleep(0.1)
    return made

package.estimate = planted
try:
    from hush_aggregator.publish import release
    release.QUICK_S, release._EVERY_S = float(os.environ["HUSH_QUICK_S"]), 0.2
except ImportError:
    pass
"""


@dataclass(frozen=True)
class Plants:
    """What grows where.

    Args:
        directory: of the test.
        kinds: by task: `raises`, `dies`, `is-no-number`, `has-no-interval`, or with seconds `spins`, `clings` (without
            ever letting another thread run), `sleeps`. A task without reports is spared.
        quick_s: when an estimate counts as slow.
    """

    directory: Path
    kinds: Mapping[str, str]
    quick_s: float = 2.0

    def environment(self) -> dict[str, str]:
        """What `hush serve` has to be started with."""
        site = self.directory / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(textwrap.dedent(_SITE), encoding="utf-8")
        return os.environ | {
            "PYTHONPATH": str(site),
            "HUSH_PLANTED": json.dumps(self.kinds),
            "HUSH_ATTEMPTS": str(self._log),
            "HUSH_QUICK_S": str(self.quick_s),
        }

    @property
    def _log(self) -> Path:
        return self.directory / "attempts"

    def attempts(self) -> dict[str, list[int]]:
        """How many reports each attempt had, by task, in order."""
        found: dict[str, list[int]] = {}
        for line in self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []:
            task, n = line.split()
            found.setdefault(task, []).append(int(n))
        return found
