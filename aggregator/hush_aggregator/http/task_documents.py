"""The document of a task as types, for the description of HTTP: what `hush_common.task` reads.

They make nothing and judge nothing themselves. A field that says nothing is left out, and there is no null.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hush_common.domain import BitDomain, CategoryDomain, NumberDomain, VectorDomain

__all__ = ["EXACT", "Moment", "TaskDocument", "TaskId"]

EXACT = ConfigDict(extra="forbid")
"""Of a document without further fields."""

TaskId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
EpsilonText = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,18})?([eE]-?[0-9])?$", examples=["0.5"])]
Line = Annotated[str, Field(max_length=500)]
Integers = int | list[int]


@with_config(EXACT)
class NumberDocument(TypedDict):
    """A number between two bounds."""

    kind: Annotated[str, Field(pattern=f"^{NumberDomain.kind}$")]
    lower: float
    upper: float
    unit: NotRequired[str]
    outside: NotRequired[Literal["clamp", "refuse"]]


@with_config(EXACT)
class BitDocument(TypedDict):
    """Yes or no."""

    kind: Annotated[str, Field(pattern=f"^{BitDomain.kind}$")]


@with_config(EXACT)
class CategoryDocument(TypedDict):
    """One of several categories."""

    kind: Annotated[str, Field(pattern=f"^{CategoryDomain.kind}$")]
    labels: list[str]
    other: NotRequired[str]


@with_config(EXACT)
class CoordinateDocument(TypedDict):
    """One number of a vector."""

    name: str
    lower: float
    upper: float
    unit: NotRequired[str]
    outside: NotRequired[Literal["clamp", "refuse"]]


@with_config(EXACT)
class VectorDocument(TypedDict):
    """Several numbers, each with its bounds."""

    kind: Annotated[str, Field(pattern=f"^{VectorDomain.kind}$")]
    coordinates: list[CoordinateDocument]


@with_config(EXACT)
class CoinsDocument(TypedDict):
    """The two coins of randomized response."""

    truth: str
    yes: str


@with_config(EXACT)
class TableDocument(TypedDict):
    """The channel of the mechanism `table`."""

    positions: list[int]
    unit: int
    weights: list[list[int]]


@with_config(EXACT)
class TaskDocument(TypedDict):
    """A task: docs/wire.md says what each field means. A draft may leave out what has one sensible value."""

    id: TaskId
    domain: NumberDocument | BitDocument | CategoryDocument | VectorDocument
    epsilon: NotRequired[EpsilonText | Annotated[int, Field(ge=1, le=50)]]
    title: NotRequired[Line]
    purpose: NotRequired[Line]
    mechanism: NotRequired[str]
    rounds: NotRequired[Annotated[int, Field(ge=1, le=1_000_000)]]
    round_every: NotRequired[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[smhdw]$", examples=["1d"])]]
    repeat: NotRequired[Literal["fresh", "sticky"]]
    opens: NotRequired[Moment]
    closes: NotRequired[Moment]
    enrolled: NotRequired[Annotated[int, Field(ge=1)]]
    offers: NotRequired[list[EpsilonText | Annotated[int, Field(ge=1, le=50)]]]
    levels: NotRequired[Integers]
    size: NotRequired[Integers]
    sampled: NotRequired[int]
    coins: NotRequired[CoinsDocument]
    table: NotRequired[TableDocument | str]
