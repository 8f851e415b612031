"""Aside: messages that somebody gets at once, past the inbox."""

from collections.abc import Callable

from paho.mqtt.client import topic_matches_sub

__all__ = ["Aside"]


class Aside:
    """Who gets the messages of which filter."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Callable[[str, bytes], object], bool]] = {}
        self._beginnings: tuple[str, ...] = ()

    def set(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool) -> None:
        """Give topic and payload of messages that a filter matches to somebody; `copy`: to others, too."""
        self._listeners[wanted] = to, copy
        self._beginnings = tuple(_beginning(one) for one in self._listeners)

    def takes(self, topic: str, payload: bytes) -> bool:
        """Give a message to whoever wants it; whether nobody else is to have it. Most are nobody's: that is quick."""
        if topic.startswith(self._beginnings):
            for wanted, (to, copy) in self._listeners.items():
                if topic_matches_sub(wanted, topic):
                    to(topic, payload)
                    if not copy:
                        return True
        return False


def _beginning(wanted: str) -> str:
    """How every topic begins that a filter matches: `a/#` is for `a`, too."""
    before = wanted.partition("+")[0].partition("#")[0]
    return before if before == wanted else before.rstrip("/")
