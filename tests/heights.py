"""A task about heights, with which most tests of devices begin."""

from hush_common.task import make_task

__all__ = ["HEIGHTS", "make_heights"]


def make_heights(**changes: object) -> bytes:
    """The payload of a task about heights, with some fields changed."""
    document: dict[str, object] = {
        "id": "heights",
        "purpose": "workplaces",
        "epsilon": "1",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0},
    }
    return make_task(document | changes).payload


HEIGHTS = make_heights()
