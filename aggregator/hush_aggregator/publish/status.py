"""The state of a running service, as its metrics report it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EstimateStatus:
    """The published estimates of a service."""

    due: int  # published estimates that are out of date
    failed: int  # tasks whose last estimate failed: published without figures
    age_s: float  # seconds since an estimate was published or, if there is none, since the start
