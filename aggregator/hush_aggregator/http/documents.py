"""The documents of HTTP as types, for its description: facts, results and problems.

They describe what `result` and its neighbours make, and make nothing themselves: tests read every kind of document
against them. A field that is not known is left out, and there is no null.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from hush_aggregator.http.task_documents import EXACT, Moment, TaskId
from hush_common.wire import Refusal

__all__ = [
    "Change",
    "Conflict",
    "Health",
    "Problem",
    "ProblemKinds",
    "Refusals",
    "RefusalsOfTask",
    "ResultDocument",
    "ResultDocuments",
    "TaskFacts",
    "TaskList",
]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 over the published task.")]
Count = Annotated[int, Field(ge=0)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


@with_config(EXACT)
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


@with_config(EXACT)
class TaskList(TypedDict):
    """All tasks of a store, in the order of their ids."""

    v: Literal[1]
    tasks: list[TaskFacts]


@with_config(EXACT)
class Change(TypedDict):
    """What was done with a task."""

    v: Literal[1]
    status: Literal["given_to_the_store", "already_in_the_store", "opened_again", "withdrawn", "closed"]
    task: TaskId
    digest: Digest
    mechanism: NotRequired[str]
    round: NotRequired[Count]
    warnings: NotRequired[list[str]]


@with_config(EXACT)
class RefusalsOfTask(TypedDict):
    """Reports refused under the name of a task, in all rounds, by reason, without zeros."""

    v: Literal[1]
    task: TaskId
    refused: dict[Refusal, Count]


@with_config(EXACT)
class Refusals(TypedDict):
    """All refusals: by task, of tasks that nobody published together, and what each reason means."""

    v: Literal[1]
    tasks: dict[str, dict[Refusal, Count]]
    unknown_tasks: dict[Refusal, Count]
    meanings: dict[Refusal, str]


@with_config(EXACT)
class BacklogDocument(TypedDict):
    """Reports that wait on the broker and are being counted.

    `counted` since the backlog was noticed, `reports_per_second` over the last ten seconds; `waiting` is about how many
    messages the broker holds, null if it does not tell.
    """

    counted: int
    reports_per_second: int
    waiting: int | None


@with_config(EXACT)
class Health(TypedDict):
    """Everything works. `backlog` is there while reports are counted that have waited on the broker.

    `warnings` say what to look at all the same.
    """

    status: Literal["ok"]
    backlog: NotRequired[BacklogDocument]
    warnings: NotRequired[list[str]]


@with_config(EXACT)
class PooledDocument(TypedDict):
    """The mean of least variance of reports under several epsilons."""

    mean: float
    weights: dict[str, float]
    assumes: str


@with_config(EXACT)
class WinsorisedDocument(TypedDict):
    """A mean that single Laplace reports cannot dominate."""

    mean: float
    touched: Count
    threshold: float
    bias_bound: float


@with_config(EXACT)
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


@with_config(EXACT)
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


@with_config(EXACT)
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


@with_config(EXACT)
class ResultDocuments(TypedDict):
    """The results of several rounds; `next` is the first round that is not among them, if there are more."""

    v: Literal[1]
    results: list[ResultDocument]
    next: NotRequired[Count]


class Problem(TypedDict):
    """What was wrong, and what to do (RFC 9457). `type` names its kind: see GET /v1/problems."""

    type: Annotated[str, Field(pattern=r"^(/v1/problems#[a-z-]+|about:blank)$", examples=["/v1/problems#unknown-task"])]
    title: str
    status: int
    detail: str


class ProblemKind(TypedDict):
    """A kind of problems."""

    status: int
    title: str


class ProblemKinds(TypedDict):
    """All kinds of problems, by name."""

    v: Literal[1]
    problems: dict[str, ProblemKind]


class Conflict(Problem):
    """The same, where another task has the id."""

    digest: NotRequired[Digest]
    there: NotRequired[Digest]
