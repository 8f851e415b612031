"""The settings of `hush serve`, validated before anything is opened."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, InstanceOf, ValidationError

from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError
from hush_common.topics import is_sender

__all__ = ["Settings"]


def _broker(value: object) -> object:
    return BrokerUrl.parse(value) if isinstance(value, str) else value


def _name(value: str) -> str:
    if not is_sender(value):
        raise ValueError("a name is part of a topic; use letters, digits and . _ @ : - (at most 128)")
    return value


def _confidence(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("a confidence lies between 0 and 1, for example 0.95")
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
        any_task: whether to count every task that appears at the broker.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    broker: Annotated[InstanceOf[BrokerUrl], BeforeValidator(_broker)]
    store: Annotated[Path, AfterValidator(_file)]
    tasks: tuple[Path, ...] = ()
    name: Annotated[str, AfterValidator(_name)] = "aggregator"
    confidence: Annotated[float, AfterValidator(_confidence)] = 0.95
    any_task: bool = False

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
