"""The settings of `hush serve`, validated before anything is opened."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, InstanceOf, ValidationError

from hush_aggregator.store import Limits
from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError
from hush_common.topics import is_sender

__all__ = ["Settings"]

_DIGITS = 12
_LEVEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _broker(value: object) -> object:
    return BrokerUrl.parse(value) if isinstance(value, str) else value


def _name(value: str) -> str:
    if not is_sender(value):
        raise ValueError("a name is part of a topic; use letters, digits and . _ @ : - (at most 128)")
    return value


def _gateways(value: object) -> object:
    """`NAME=M`, for each gateway: how many reports of a round may come from it."""
    if not isinstance(value, tuple):
        return value
    found: dict[str, int] = {}
    for text in value:
        name, equals, number = text.partition("=")
        if not equals or not is_sender(name) or not number.isascii() or not number.isdecimal() or len(number) > _DIGITS:
            raise ValueError("a gateway is given as NAME=M, its MQTT user and a whole number, as in kitchen=500")
        if name in found:
            raise ValueError("a gateway stands there twice; leave one out")
        found[name] = int(number)
    return found


def _quota(value: int) -> int:
    if value < 1:
        raise ValueError("a quota is at least 1; leave it out to count any number of reports of one sender")
    return value


def _confidence(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("a confidence lies between 0 and 1, for example 0.95")
    return value


def _seconds(value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError("is not a length of time; write seconds, or 0 for no end")
    return value


def _prefix(value: str) -> str:
    if not _LEVEL.fullmatch(value):
        raise ValueError("is no level of a topic of Home Assistant; use letters, digits, _ and - (at most 64)")
    return value


def _file(value: Path) -> Path:
    try:
        is_directory, has_place = value.is_dir(), value.parent.is_dir()
    except OSError as error:
        raise ValueError(f"cannot be opened ({error.strerror}); name another file") from error
    if is_directory:
        raise ValueError("is a directory; name a file")
    if not has_place:
        raise ValueError(f"the directory {value.parent} does not exist; create it")
    return value


class Settings(BaseModel):
    """Settings of `hush serve`.

    Args:
        broker: where reports come from; text is parsed.
        store: the SQLite file, created if missing.
        tasks: task files to publish and to count.
        name: names this aggregator at the broker: one name, one store.
        confidence: nominal coverage of the intervals, inside (0, 1).
        login_timeout: seconds after which a login that is refused all the time ends the service; 0 for never.
        any_task: whether to count every task that appears at the broker.
        quota: how many reports of a round one sender may have counted; None for any number.
        home_assistant: prefix under which tasks are announced to Home Assistant; None for not at all.
        page: the address of the page, to which their devices link; empty for none.
        gateways: how many instead, by the names of senders that speak for many devices; text is parsed.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    broker: Annotated[InstanceOf[BrokerUrl], BeforeValidator(_broker)]
    store: Annotated[Path, AfterValidator(_file)]
    tasks: tuple[Path, ...] = ()
    name: Annotated[str, AfterValidator(_name)] = "aggregator"
    confidence: Annotated[float, AfterValidator(_confidence)] = 0.95
    login_timeout: Annotated[float, AfterValidator(_seconds)] = 60.0
    any_task: bool = False
    home_assistant: Annotated[str, AfterValidator(_prefix)] | None = None
    page: str = ""
    quota: Annotated[int, AfterValidator(_quota)] | None = None
    gateways: Annotated[dict[str, int], BeforeValidator(_gateways)] = {}

    @property
    def limits(self) -> Limits | None:
        """What a store enforces."""
        return None if self.quota is None else Limits(self.quota, self.gateways)

    @classmethod
    def read(cls, values: Mapping[str, object]) -> "Settings":
        """Validate `values`.

        Raises:
            OptionError: naming the setting, its value, and the remedy.
            BrokerError: the address of the broker is none.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            message = str(first.get("ctx", {}).get("error", first["msg"]))
            silent = name == "broker" or first["type"] in {"missing", "extra_forbidden"}  # a password may stand in it
            value = "" if silent else f"{str(first['input'])[:80]!r}: "
            raise OptionError(name, f"{value}{message}") from error
