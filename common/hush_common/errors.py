"""Exceptions: one tree, for unexpected events. The expected refusal of a report is a value, `Refusal`.

    HushError
    ├── TaskError            a task that must not be published or answered
    │   └── EpsilonError     an epsilon that is not a number, or outside the supported range
    ├── OptionError          a setting, an option or an argument that cannot be used
    ├── StateError           the durable state of a device cannot be used
    ├── StoreError           the durable store of an aggregator cannot be used
    │   └── StoreUnavailableError      its server cannot be reached now
    ├── SetupError           the files of a broker cannot be made or changed
    ├── BrokerError          the broker is unreachable, refuses, or is lost
    │   ├── LoginRefusedError          it refuses this user
    │   ├── SubscriptionRefusedError   it refuses a topic
    │   ├── ProtocolRefusedError       it does not support this version of MQTT
    │   └── FeatureMissingError        it has no retained messages, no QoS 1 or no last will
    └── MissingExtraError    a part of hush that is not installed, also an ImportError

Each message is one line that says what is wrong and what to do, whatever the names in it contain. No error exists for a
value: a device answers with any value (`hush_common.domain`), and no message contains one.
"""

import re
from enum import StrEnum
from typing import Self

_LOGIN = re.compile(  # of an address that was typed in the wrong place, also without a scheme; not of 18:30@home
    r"(?<=/)[^/:\s]*:\S*@|(?:^|(?<=[\s'\"(=]))(?!\d{1,2}:\d\d@)[^/:\s'\"(=]+:(?!/)\S*@"
)
_PASSWORD = re.compile(r"((?:password|passwd|pwd|secret|token)\s*=\s*)(?:'[^']*'|[^\s;&]+)", re.IGNORECASE)


def printable(text: str) -> str:
    """Return `text` as one line without control characters, changes of direction, logins and passwords."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return _PASSWORD.sub(r"\1…", _LOGIN.sub("…@", shown))


def shown(text: str) -> str:
    """Return the start of what was given, in quotes; nothing of it if it may have a login."""
    return "'…'" if "@" in text else repr(text[:80])


class ExplainedEnum(StrEnum):
    """Words of a protocol, each with its `meaning`: one line for a person."""

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:  # the default, for a type checker of `Words("word")`
        self = str.__new__(cls, word)
        self._value_, self.meaning = word, meaning
        return self


class HushError(Exception):
    """Root of everything hush raises on purpose; a command ends with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: one line. IPython calls it; the frames of hush would say nothing to a person."""
        return [f"{type(self).__name__}: {self}"]


class TaskError(HushError):
    """A task that must not be published or answered.

    Attributes:
        field: the name of the offending field, dotted (`domain.lower`).
    """

    exit_code = 2

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class EpsilonError(TaskError):
    """An epsilon that is not an exact decimal number, or is outside the supported range."""


class StateError(HushError):
    """The durable state of a device cannot be opened, read or written."""


class StoreError(HushError):
    """The durable store of an aggregator cannot be opened, read or written."""


class StoreUnavailableError(StoreError):
    """The server of a store ended the connection, or cannot be reached now: the same call may succeed later."""


class UnknownCommitError(StoreError):
    """The server of a store remained away after a commit, which may have taken place: the call is not repeated."""


class SetupError(HushError):
    """The files of a broker cannot be made or changed."""


class OptionError(HushError):
    """A setting, an option of the command line or an argument of a function that cannot be used.

    Attributes:
        option: its name as typed (`--clients`).
        message: what is wrong with it, and the remedy.
    """

    exit_code = 2

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option}: {message}")
        self.option = option
        self.message = message


class BrokerError(HushError):
    """The broker is unreachable, refuses the login, or is lost.

    Attributes:
        url: the address of the broker, without its password.
        message: what is wrong with it.
        reason: the reason code of MQTT 5 with which it ended the connection, if any.
    """

    def __init__(self, url: str, message: str, *, reason: int | None = None) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url
        self.message = message
        self.reason = reason


class LoginRefusedError(BrokerError):
    """The broker refuses this user: a wrong password, or none."""


class SubscriptionRefusedError(BrokerError):
    """The broker does not let this user read a topic. The connection continues."""


class ProtocolRefusedError(BrokerError):
    """The broker does not support the requested version of MQTT, or hung up instead of answering.

    Attributes:
        said: whether it answered.
    """

    def __init__(self, url: str, message: str, *, said: bool) -> None:
        super().__init__(url, message)
        self.said = said


class FeatureMissingError(BrokerError):
    """The broker does not have what hush needs: retained messages, QoS 1 or a last will."""


class MissingExtraError(HushError, ImportError):
    """A part of hush that is not installed: its extra is missing."""


def flatten_group(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group and of the groups in it, in order; for any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in flatten_group(inner)]
