"""Aside: messages that a listener gets at once, past the inbox."""

from collections.abc import Callable

from paho.mqtt.client import topic_matches_sub

__all__ = ["Aside"]


class Aside:
    """Who gets the messages of which filter."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Callable[[str, bytes], object], bool]] = {}
        self._beginnings: tuple[str, ...] = ()
        self._ends: tuple[str, ...] = ()

    def set(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool) -> None:
        """Give topic and payload of messages that match a filter to `to`; `copy`: the inbox gets them too."""
        self._listeners[wanted] = to, copy
        beginnings = {one: _beginning(one) for one in self._listeners}
        self._beginnings = tuple(filter(None, beginnings.values()))
        self._ends = tuple(_end(one) for one, beginning in beginnings.items() if not beginning)

    def takes(self, topic: str, payload: bytes) -> bool:
        """Give a message to its listeners; return whether nobody else gets it.

        Nobody listens to most messages, and a filter is matched for each of those that could be meant: their topics
        begin as the filter does, or, if that begins with a wildcard, end as it does.
        """
        if topic.startswith(self._beginnings) or topic.endswith(self._ends):
            for wanted, (to, copy) in self._listeners.items():
                if topic_matches_sub(wanted, topic):
                    to(topic, payload)
                    if not copy:
                        return True
        return False


def _beginning(wanted: str) -> str:
    """Return how every topic begins that matches a filter: `a/#` matches `a`, too."""
    before = wanted.partition("+")[0].partition("#")[0]
    return before if before == wanted else before.rstrip("/")


def _end(wanted: str) -> str:
    """Return how every topic ends that matches a filter."""
    return "" if wanted.endswith("#") else wanted.rpartition("+")[2]
