"""The documents of HTTP as types, and the OpenAPI description that is made from them.

Nothing is parsed by these types; tests check each kind of document against them. Absent values are left out, not null.
"""

from typing import Annotated, Any, Literal, NotRequired

from fastapi import FastAPI
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from hush_aggregator.web.service import PROBLEM
from hush_common.domain import BitDomain, CategoryDomain, NumberDomain, VectorDomain
from hush_common.wire import Refusal


@with_config(ConfigDict(extra="forbid"))
class _Document(TypedDict):
    """A JSON object without further fields."""


class _Versioned(_Document):
    v: Literal[1]


TaskId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
EpsilonText = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,18})?([eE]-?[0-9])?$", examples=["0.5"])]
Line = Annotated[str, Field(max_length=500)]
Integers = int | list[int]


class _Bounds(_Document):
    lower: float
    upper: float
    unit: NotRequired[str]
    outside: NotRequired[Literal["clamp"]]


class NumberDocument(_Bounds):
    """A number between two bounds."""

    kind: Annotated[str, Field(pattern=f"^{NumberDomain.kind}$")]


class BitDocument(_Document):
    """Yes or no."""

    kind: Annotated[str, Field(pattern=f"^{BitDomain.kind}$")]


class CategoryDocument(_Document):
    """One of several categories."""

    kind: Annotated[str, Field(pattern=f"^{CategoryDomain.kind}$")]
    labels: list[str]
    other: NotRequired[str]


class CoordinateDocument(_Bounds):
    """One number of a vector."""

    name: str


class VectorDocument(_Document):
    """Several numbers, each with its bounds."""

    kind: Annotated[str, Field(pattern=f"^{VectorDomain.kind}$")]
    coordinates: list[CoordinateDocument]


class CoinsDocument(_Document):
    """The two coins of randomized response."""

    truth: str
    yes: str


class TableDocument(_Document):
    """The channel of the mechanism `table`."""

    positions: list[int]
    unit: int
    weights: list[list[int]]


Length = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[smhdw]$", examples=["1d"])]


class TaskDocument(_Document):
    """A task: docs/wire.md says what each field means. A draft may leave out what has one sensible value."""

    id: TaskId
    domain: NumberDocument | BitDocument | CategoryDocument | VectorDocument
    epsilon: NotRequired[EpsilonText | Annotated[int, Field(ge=1, le=50)]]
    title: NotRequired[Line]
    purpose: NotRequired[Line]
    mechanism: NotRequired[str]
    rounds: NotRequired[Annotated[int, Field(ge=1, le=1_000_000)]]
    round_every: NotRequired[Length]
    repeat: NotRequired[Literal["fresh", "sticky"]]
    opens: NotRequired[Moment]
    closes: NotRequired[Moment]
    enrolled: NotRequired[Annotated[int, Field(ge=1)]]
    release_from: NotRequired[Annotated[int, Field(ge=1)]]
    release_every: NotRequired[Length]
    retention: NotRequired[Length]
    offers: NotRequired[list[EpsilonText | Annotated[int, Field(ge=1, le=50)]]]
    levels: NotRequired[Integers]
    size: NotRequired[Integers]
    sampled: NotRequired[int]
    coins: NotRequired[CoinsDocument]
    table: NotRequired[TableDocument | str]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 over the published task.")]
Count = Annotated[int, Field(ge=0)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


class TaskFacts(_Document):
    """The facts of a task: who gave it, its state, and who publishes it.

    `n` is of its latest round, of a task with a release policy as released.
    """

    v: NotRequired[Literal[1]]
    task: TaskId
    digest: Digest
    origin: Literal["file", "command", "http", "broker"]
    state: Literal["open", "withdrawn", "closed", "forgotten"]
    owner: str
    round: Count
    n: Count


class TaskList(_Versioned):
    """All tasks of a store, in the order of their ids."""

    tasks: list[TaskFacts]


class Change(_Versioned):
    """What was done with a task."""

    status: Literal["given_to_the_store", "already_in_the_store", "opened_again", "withdrawn", "closed"]
    task: TaskId
    digest: Digest
    mechanism: NotRequired[str]
    round: NotRequired[Count]
    warnings: NotRequired[list[str]]


class RefusalsOfTask(_Versioned):
    """Reports refused under the name of a task, in all rounds, by reason, without zeros."""

    task: TaskId
    refused: dict[Refusal, Count]


class Refusals(_Versioned):
    """All refused reports: by task, those of unknown tasks together, and what each reason means."""

    tasks: dict[str, dict[Refusal, Count]]
    unknown_tasks: dict[Refusal, Count]
    meanings: dict[Refusal, str]


class BacklogDocument(_Document):
    """Reports that wait on the broker and are being counted.

    `counted` since the backlog was noticed, `reports_per_second` over the last ten seconds; `waiting` is about how many
    messages the broker holds, null if it does not report it.
    """

    counted: int
    reports_per_second: int
    waiting: int | None


class Health(_Document):
    """The service works. `backlog` is present while waiting reports are counted. `warnings` are for operators."""

    status: Literal["ok"]
    backlog: NotRequired[BacklogDocument]
    warnings: NotRequired[list[str]]


class PooledDocument(_Document):
    """The mean of least variance of reports under several epsilons."""

    mean: float
    weights: dict[str, float]
    assumes: str


class WinsorisedDocument(_Document):
    """A mean that single Laplace reports cannot dominate."""

    mean: float
    touched: Count
    threshold: float
    bias_bound: float


class _Errors(_Document):
    stderr: NotRequired[dict[str, float]]
    stderr_plug_in: NotRequired[dict[str, float]]
    manski: NotRequired[Interval]
    failures: NotRequired[dict[str, str]]


class CategoryResult(_Errors):
    """The frequency of one category."""

    label: str
    frequency: float
    intervals: dict[str, Interval]
    joint_intervals: dict[str, Interval]


class _Mean(_Errors):
    mean: NotRequired[float]
    unit: NotRequired[str]
    n: Count
    intervals: NotRequired[dict[str, Interval]]
    methods: NotRequired[dict[str, str]]
    worst_case_bias: NotRequired[dict[str, float]]
    replacement_bias: NotRequired[dict[str, float]]


class CoordinateResult(_Mean):
    """The mean of one coordinate."""

    name: str
    joint_intervals: NotRequired[dict[str, Interval]]
    joint_methods: NotRequired[dict[str, str]]


class ResultDocument(_Versioned, _Mean):
    """The result of one round, as `hush results --json` prints it: docs/wire.md says what each field means."""

    task: TaskId
    digest: Digest
    round: Count
    mechanism: str
    epsilon: str
    epsilon_per_round: NotRequired[str]
    repeat: NotRequired[Literal["sticky"]]
    offers: NotRequired[list[str]]
    enrolled: NotRequired[Count]
    release_from: NotRequired[Count]
    release_every: NotRequired[Length]
    confidence: float
    refused: dict[Refusal, Count]
    flags: NotRequired[list[str]]
    closed: NotRequired[Literal[True]]
    final: NotRequired[Literal[True]]
    pooled: NotRequired[PooledDocument]
    categories: NotRequired[list[CategoryResult]]
    coordinates: NotRequired[list[CoordinateResult]]
    consistent: NotRequired[list[float]]
    winsorised: NotRequired[WinsorisedDocument]
    monitor: NotRequired[Literal["ok", "too_little_noise", "outliers"]]
    updated_at: Moment


class ResultDocuments(_Versioned):
    """The results of several rounds; `next` is the first round that is not among them, if there are more."""

    results: list[ResultDocument]
    next: NotRequired[Count]


class StepDocument(_Document):
    """How far a round was before a time: reports counted and, of a number or a bit, the estimate and its interval.

    `interval` is valid at any time, at the level `confidence`.
    """

    until: Moment
    n: Count
    mean: NotRequired[float]
    interval: NotRequired[Interval]
    confidence: NotRequired[float]


class StepsDocument(_Versioned):
    """The steps of one round, in the order of time."""

    task: TaskId
    digest: Digest
    round: Count
    steps: list[StepDocument]


class Problem(TypedDict):
    """What was wrong, and what to do (RFC 9457). For `type` see GET /v1/problems."""

    type: Annotated[str, Field(pattern=r"^(/v1/problems#[a-z-]+|about:blank)$", examples=["/v1/problems#unknown-task"])]
    title: str
    status: int
    detail: str


class ProblemKind(TypedDict):
    """A type of problems."""

    status: int
    title: str


class ProblemKinds(TypedDict):
    """All types of problems, by name."""

    v: Literal[1]
    problems: dict[str, ProblemKind]


class Conflict(Problem):
    """The same, where another task has the id."""

    digest: NotRequired[Digest]
    there: NotRequired[Digest]


_PLACE = "#/components/schemas/{model}"
_FORMS = (Problem, Conflict, TaskDocument)  # those that no endpoint names as what it answers


def schema_ref(name: str) -> dict[str, str]:
    """A reference to the form of a document."""
    return {"$ref": _PLACE.format(model=name)}


CONFLICT: dict[str, object] = {
    "description": "Another task has its id.",
    "content": {PROBLEM: {"schema": schema_ref("Conflict")}},
}
"""Of an endpoint where two tasks may meet."""

_FAILURES: dict[str, object] = {
    "4XX": {"description": "What was wrong with the request.", "content": {PROBLEM: {"schema": schema_ref("Problem")}}},
    "5XX": {"description": "What is wrong with the service.", "content": {PROBLEM: {"schema": schema_ref("Problem")}}},
}


class DescribedApp(FastAPI):
    """An application whose description has all answers."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            document = super().openapi()
            forms = document.setdefault("components", {}).setdefault("schemas", {})
            for kind in _FORMS:
                found = TypeAdapter(kind).json_schema(ref_template=_PLACE)
                forms |= found.pop("$defs", {})
                forms[kind.__name__] = found
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)  # one of them all
                    operation["responses"] |= _FAILURES
            for name in ("HTTPValidationError", "ValidationError"):
                forms.pop(name, None)
        return super().openapi()
