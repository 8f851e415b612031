"""The documents of HTTP as types, for its description: tasks as devices read them, results as brokers retain them.

They describe what `task_document` and `result` make, and make nothing themselves: tests read every kind of document
against them. A field that is not known is left out, and there is no null.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hush_common.refusal import Refusal

__all__ = [
    "Change",
    "Conflict",
    "Health",
    "Problem",
    "Refusals",
    "RefusalsOfTask",
    "ResultDocument",
    "ResultDocuments",
    "TaskDocument",
    "TaskFacts",
    "TaskList",
]

_EXACT = ConfigDict(extra="forbid")

TaskId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="The head of SHA-256 over the published task.")]
Count = Annotated[int, Field(ge=0)]
EpsilonText = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,18})?([eE]-?[0-9])?$", examples=["0.5"])]
Line = Annotated[str, Field(max_length=500)]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Integers = int | list[int]


@with_config(_EXACT)
class NumberDocument(TypedDict):
    """A number between two bounds."""

    kind: Literal["number"]
    lower: float
    upper: float
    unit: NotRequired[str]
    outside: NotRequired[Literal["clamp", "refuse"]]


@with_config(_EXACT)
class BitDocument(TypedDict):
    """Yes or no."""

    kind: Literal["bit"]


@with_config(_EXACT)
class CategoryDocument(TypedDict):
    """One of several categories."""

    kind: Literal["category"]
    labels: list[str]
    other: NotRequired[str]


@with_config(_EXACT)
class CoordinateDocument(TypedDict):
    """One number of a vector."""

    name: str
    lower: float
    upper: float
    unit: NotRequired[str]
    outside: NotRequired[Literal["clamp", "refuse"]]


@with_config(_EXACT)
class VectorDocument(TypedDict):
    """Several numbers, each with its bounds."""

    kind: Literal["vector"]
    coordinates: list[CoordinateDocument]


@with_config(_EXACT)
class CoinsDocument(TypedDict):
    """The two coins of randomized response."""

    truth: str
    yes: str


@with_config(_EXACT)
class TableDocument(TypedDict):
    """The channel of the mechanism `table`."""

    positions: list[int]
    unit: int
    weights: list[list[int]]


@with_config(_EXACT)
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


@with_config(_EXACT)
class TaskFacts(TypedDict):
    """What is told of a task: who gave it, what is to become of it, who publishes it. `n` is of its latest round."""

    v: NotRequired[Literal[1]]
    task: TaskId
    digest: Digest
    origin: Literal["file", "command", "http", "broker"]
    state: Literal["open", "withdrawn", "closed", "forgotten"]
    owner: str
    round: Count
    n: Count


@with_config(_EXACT)
class TaskList(TypedDict):
    """All tasks of a store, in the order of their ids."""

    v: Literal[1]
    tasks: list[TaskFacts]


@with_config(_EXACT)
class Change(TypedDict):
    """What was done with a task."""

    v: Literal[1]
    status: Literal["given_to_the_store", "already_in_the_store", "opened_again", "withdrawn", "closed"]
    task: TaskId
    digest: Digest
    mechanism: NotRequired[str]
    round: NotRequired[Count]
    warnings: NotRequired[list[str]]


@with_config(_EXACT)
class RefusalsOfTask(TypedDict):
    """Reports refused under the name of a task, in all rounds, by reason, without zeros."""

    v: Literal[1]
    task: TaskId
    refused: dict[Refusal, Count]


@with_config(_EXACT)
class Refusals(TypedDict):
    """All refusals: by task, of tasks that nobody published together, and what each reason means."""

    v: Literal[1]
    tasks: dict[str, dict[Refusal, Count]]
    unknown_tasks: dict[Refusal, Count]
    meanings: dict[Refusal, str]


@with_config(_EXACT)
class Health(TypedDict):
    """That it is so."""

    status: Literal["ok"]


@with_config(_EXACT)
class PooledDocument(TypedDict):
    """The mean of least variance of reports under several epsilons."""

    mean: float
    weights: dict[str, float]
    assumes: str


@with_config(_EXACT)
class WinsorisedDocument(TypedDict):
    """A mean that single Laplace reports cannot dominate."""

    mean: float
    touched: Count
    threshold: float
    bias_bound: float


@with_config(_EXACT)
class CategoryResult(TypedDict):
    """The frequency of one category."""

    label: str
    frequency: float
    stderr: NotRequired[dict[str, float]]
    stderr_plug_in: NotRequired[dict[str, float]]
    intervals: dict[str, Interval]
    joint_intervals: dict[str, Interval]
    manski: NotRequired[Interval]
    failures: NotRequired[dict[str, str]]


@with_config(_EXACT)
class CoordinateResult(TypedDict):
    """The mean of one coordinate."""

    name: str
    unit: NotRequired[str]
    n: Count
    mean: NotRequired[float]
    stderr: NotRequired[dict[str, float]]
    stderr_plug_in: NotRequired[dict[str, float]]
    intervals: NotRequired[dict[str, Interval]]
    methods: NotRequired[dict[str, str]]
    joint_intervals: NotRequired[dict[str, Interval]]
    joint_methods: NotRequired[dict[str, str]]
    failures: NotRequired[dict[str, str]]
    worst_case_bias: NotRequired[dict[str, float]]
    replacement_bias: NotRequired[dict[str, float]]
    manski: NotRequired[Interval]


@with_config(_EXACT)
class ResultDocument(TypedDict):
    """The result of one round, as `hush results --json` prints it: docs/wire.md says what each field means."""

    v: Literal[1]
    task: TaskId
    digest: Digest
    round: Count
    mechanism: str
    epsilon: str
    epsilon_per_round: NotRequired[str]
    repeat: NotRequired[Literal["sticky"]]
    offers: NotRequired[list[str]]
    unit: NotRequired[str]
    enrolled: NotRequired[Count]
    confidence: float
    n: Count
    refused: dict[Refusal, Count]
    flags: NotRequired[list[str]]
    closed: NotRequired[Literal[True]]
    final: NotRequired[Literal[True]]
    mean: NotRequired[float]
    stderr: NotRequired[dict[str, float]]
    stderr_plug_in: NotRequired[dict[str, float]]
    intervals: NotRequired[dict[str, Interval]]
    methods: NotRequired[dict[str, str]]
    pooled: NotRequired[PooledDocument]
    categories: NotRequired[list[CategoryResult]]
    coordinates: NotRequired[list[CoordinateResult]]
    consistent: NotRequired[list[float]]
    winsorised: NotRequired[WinsorisedDocument]
    manski: NotRequired[Interval]
    worst_case_bias: NotRequired[dict[str, float]]
    replacement_bias: NotRequired[dict[str, float]]
    monitor: NotRequired[Literal["ok", "too_little_noise", "outliers"]]
    failures: NotRequired[dict[str, str]]
    updated_at: Moment


@with_config(_EXACT)
class ResultDocuments(TypedDict):
    """The results of several rounds; `next` is the first round that is not among them, if there are more."""

    v: Literal[1]
    results: list[ResultDocument]
    next: NotRequired[Count]


class Problem(TypedDict):
    """What was wrong, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Conflict(Problem):
    """The same, where another task has the id."""

    digest: NotRequired[Digest]
    there: NotRequired[Digest]
