"""Topic filters: which topics a subscription takes in."""

__all__ = ["matches"]


def matches(wanted: str, topic: str) -> bool:
    """Whether a topic filter, with `+` for one level and `#` for the rest, takes in `topic`."""
    if "+" not in wanted and "#" not in wanted:
        return wanted == topic
    levels = topic.split("/")
    for position, level in enumerate(wanted.split("/")):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted.split("/")) == len(levels)
