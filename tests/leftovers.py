"""Garbage that earlier tests of the same process left."""

import gc
import warnings


def collect_leftovers() -> None:
    """Collect the garbage of earlier tests, so that its warnings and log lines are not taken for those of this test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
