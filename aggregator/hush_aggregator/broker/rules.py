"""Rules of access, in the words of mosquitto's file: who may read and write which topics of hush.

A file of rules never refuses a subscription: it decides on each message that would be delivered, and on each that is
published. What a rule forbids a subscriber simply does not come.
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise

from hush_common.topics import (
    ALL_ESTIMATES,
    ALL_RECALLS,
    ALL_REPORTS,
    ALL_TASKS,
    status_topic,
)

__all__ = ["Role", "control_of", "roles_of", "rules"]

_TITLE = "# The rules of hush; `hush broker add` and `hush broker remove` write this file anew."
_OWN_REPORTS = ALL_REPORTS.removesuffix("+") + "%u"  # %u is the user, who is the sender: no one else's name will do


class Role(StrEnum):
    """What a user is, and may do beside what everybody may.

    Everybody reads tasks, recalls and estimates, and writes reports under the user's own name.
    """

    DEVICE = "device"
    AGGREGATOR = "aggregator"
    ANNOUNCER = "announcer"
    HOME_ASSISTANT = "home-assistant"
    PUBLISHER = "publisher"

    @property
    def has_control(self) -> bool:
        """Whether it is the role of an aggregator, which has two connections, and so two users."""
        return self in (Role.AGGREGATOR, Role.ANNOUNCER)

    @property
    def meaning(self) -> str:
        """One line for a person."""
        return _MEANING[self]


_MEANING = {
    Role.DEVICE: "a device or a gateway",
    Role.AGGREGATOR: "`hush serve`, or one worker of it",
    Role.ANNOUNCER: "`hush serve --home-assistant`",
    Role.HOME_ASSISTANT: "Home Assistant",
    Role.PUBLISHER: "`hush task publish`",
}
_COUNTING = (
    f"read {ALL_REPORTS}",
    f"readwrite {ALL_TASKS}",
    f"readwrite {ALL_RECALLS}",
    f"readwrite {ALL_ESTIMATES}",
    f"readwrite {status_topic('+')}",
    "read $SYS/broker/#",  # whether the broker was started anew, and what it dropped
)
_HOME_ASSISTANT = "homeassistant"  # where it looks, if it was not told otherwise
_BESIDE = {
    Role.DEVICE: (),
    Role.AGGREGATOR: _COUNTING,
    Role.ANNOUNCER: (*_COUNTING, f"readwrite {_HOME_ASSISTANT}/device/+/config", f"read {_HOME_ASSISTANT}/status"),
    Role.HOME_ASSISTANT: (f"readwrite {_HOME_ASSISTANT}/#", f"read {status_topic('+')}"),
    Role.PUBLISHER: (f"readwrite {ALL_TASKS}",),
}


def control_of(user: str) -> str:
    """Return the second user of an aggregator: the client id is the user, and a client id has one connection."""
    return f"{user}-control"


def rules(roles: Mapping[str, Role]) -> str:
    """The file of rules, for users with these roles."""
    lines = [_TITLE, "", *(f"pattern read {topic}" for topic in (ALL_TASKS, ALL_RECALLS, ALL_ESTIMATES))]
    lines.append(f"pattern write {_OWN_REPORTS}")
    for user, role in sorted(roles.items()):
        if _BESIDE[role]:
            lines += ["", f"# {role}", f"user {user}", *(f"topic {rule}" for rule in _BESIDE[role])]
    return "\n".join([*lines, ""])


def roles_of(text: str) -> dict[str, Role]:
    """The users with rights of their own in a file that `rules` made."""
    lines = text.splitlines()
    heads = {f"# {role}": role for role in Role}
    return {
        line.removeprefix("user "): heads.get(before, Role.DEVICE)
        for before, line in pairwise(lines)
        if line.startswith("user ")
    }
