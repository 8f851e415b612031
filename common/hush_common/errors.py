"""Exceptions: one tree, for what should not happen. What may happen to a report is a `Refusal`, a value.

    HushError
    ├── TaskError            a task that must not be published or answered
    │   └── EpsilonError     an epsilon that is not a number, or outside the supported range
    ├── OptionError          a setting, an option or an argument that cannot be used
    ├── StateError           the durable state of a device cannot be used
    ├── StoreError           the durable store of an aggregator cannot be used
    ├── SetupError           the files of a broker cannot be made or changed
    ├── BrokerError          the broker is not there, refuses, or vanished
    │   ├── LoginRefusedError          it does not let this user in
    │   ├── SubscriptionRefusedError   it keeps a topic to itself
    │   └── ProtocolRefusedError       it does not speak this version of MQTT
    └── MissingExtraError    a part of hush that is not installed, also an ImportError

Each message is one line that says what is wrong and what to do, whatever the names in it contain. No error exists for a
value: a device answers with any value (`hush_common.domain`), and no message contains one.
"""

import re

_LOGIN = re.compile(r"(?<=/)[^/:\s]*:\S*@")  # of an address that was typed where another thing belongs


def printable(text: str) -> str:
    """`text` in one line that cannot write to a terminal or turn the order of letters round, and without a login."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return _LOGIN.sub("…@", shown)


class HushError(Exception):
    """Root of everything hush raises on purpose; `exit_code` is what a command ends with."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


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
    """The broker is not there, refuses the login, or vanished.

    Attributes:
        url: the address of the broker, without its password.
        message: what is wrong with it.
        reason: the reason code of MQTT 5 with which it ended the connection; None where it gave none.
    """

    def __init__(self, url: str, message: str, *, reason: int | None = None) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url
        self.message = message
        self.reason = reason


class LoginRefusedError(BrokerError):
    """The broker does not let this user in: a wrong password, or none."""


class SubscriptionRefusedError(BrokerError):
    """The broker does not let this user read a topic. The connection lives on."""


class ProtocolRefusedError(BrokerError):
    """The broker does not speak the version of MQTT that it was asked for, or hung up where it should have said so.

    Attributes:
        said: whether it said so.
    """

    def __init__(self, url: str, message: str, *, said: bool) -> None:
        super().__init__(url, message)
        self.said = said


class MissingExtraError(HushError, ImportError):
    """A part of hush that is not installed: its extra is missing."""


def flatten_group(error: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups in it, in order, at least one; of any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in flatten_group(inner)]


def most_severe(errors: BaseExceptionGroup[BaseException], *, least: type[BaseException]) -> BaseException:
    """The one error of a group to tell: the first that is not of the kind that matters least, if there is one."""
    found = flatten_group(errors)
    return next((error for error in found if not isinstance(error, least)), found[0])
