"""Tasks over HTTP: what is asked, and what is refused."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BeforeValidator
from starlette.types import Receive, Scope, Send

from hush_aggregator.count import tasks as changes
from hush_aggregator.count.tasks import check_round, facts_of, row_of
from hush_aggregator.ops.export import ESTIMATE_COLUMNS, FORMATS, estimates_csv, need_arrow, reports_of
from hush_aggregator.ops.metrics import CONTENT_TYPE, Exposition, MetricValues, StoreFigures
from hush_aggregator.ops.service_metrics import ServiceValues
from hush_aggregator.publish.explain import warnings
from hush_aggregator.store.base import UNKNOWN, Origin, Step, StoreEditor, StoreReader, TaskRow
from hush_aggregator.store.location import open_editor, open_reader
from hush_aggregator.web.feed import ChangeFeed
from hush_aggregator.web.latency import RequestLatency
from hush_aggregator.web.schemas import (
    CONFLICT,
    Change,
    Health,
    ProblemKinds,
    Refusals,
    RefusalsOfTask,
    ResultDocument,
    ResultDocuments,
    StepsDocument,
    TaskDocument,
    TaskFacts,
    TaskList,
    schema_ref,
)
from hush_aggregator.web.security import may_export, may_write, only_digits
from hush_aggregator.web.service import (
    JSON,
    PROBLEMS_PATH,
    SILENT_S,
    ProblemError,
    ProblemType,
    Service,
    ServiceDep,
    StoreDep,
    StoreService,
    answer,
)
from hush_common.errors import OptionError, StoreError, TaskError
from hush_common.task import ROUND_LIMIT, Task, read_draft
from hush_common.wire import Refusal

Id = Annotated[str, Path(description="Id of the task.", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]

task_routes: APIRouter = APIRouter(prefix="/v1", tags=["tasks"])


@task_routes.get("/tasks", responses={200: {"model": TaskList}})
async def list_tasks(store: StoreDep) -> Response:
    """List the tasks: who gave them, their state, and who publishes them."""

    def read(opened: StoreReader) -> list[dict[str, str | int]]:
        return [facts_of(opened, row) for row in opened.task_rows()]

    return answer({"v": 1, "tasks": await store.run(read)})


@task_routes.get("/tasks/{task_id}", responses={200: {"model": TaskFacts}})
async def get_task(task_id: Id, store: StoreDep) -> Response:
    """One task of the list."""

    def read(opened: StoreReader) -> dict[str, str | int]:
        return facts_of(opened, row_of(opened, task_id, forgotten=True))

    return answer({"v": 1, **await store.run(read)})


@task_routes.get("/tasks/{task_id}/document", responses={200: {"model": TaskDocument}})
async def get_document(task_id: Id, store: StoreDep) -> Response:
    """The task as it is published, byte for byte; the digest is the hash of these bytes."""
    row = await store.run(partial(row_of, task_id=task_id))
    return Response(row.payload, media_type=JSON)


@task_routes.get("/tasks/{task_id}/refusals", responses={200: {"model": RefusalsOfTask}})
async def get_refusals(task_id: Id, store: StoreDep) -> Response:
    """Refused reports of a task, in all rounds, by reason."""

    def read(opened: StoreReader) -> dict[Refusal, int]:
        row_of(opened, task_id, forgotten=True)
        return opened.refusals(task_id)

    return answer({"v": 1, "task": task_id, "refused": _named(await store.run(read))})


@task_routes.get("/refusals", responses={200: {"model": Refusals}})
async def list_refusals(store: StoreDep) -> Response:
    """All refused reports, by task and reason, those of unknown tasks together; and what each reason means."""

    def read(opened: StoreReader) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
        tasks = {row.id: _named(opened.refusals(row.id)) for row in opened.task_rows()}
        return {task_id: refused for task_id, refused in tasks.items() if refused}, _named(opened.refusals(UNKNOWN))

    tasks, unknown = await store.run(read)
    meanings = {reason.value: reason.meaning for reason in Refusal}
    return answer({"v": 1, "tasks": tasks, "unknown_tasks": unknown, "meanings": meanings})


def _named(refused: dict[Refusal, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in refused.items()}


_MOST = 100  # rounds in one answer

Round = Annotated[
    int, Path(description="The round, counted from 0.", ge=0, lt=ROUND_LIMIT), BeforeValidator(only_digits)
]

result_routes: APIRouter = APIRouter(prefix="/v1/tasks/{task_id}/rounds", tags=["results"])


@result_routes.get("/latest", responses={200: {"model": ResultDocument}})
async def get_latest(task_id: Id, store: StoreDep) -> Response:
    """The result of the latest round that has a report, or of the first round."""
    return Response(store.document(await store.result(await _task(task_id, store))), media_type=JSON)


@result_routes.get("/all", responses={200: {"model": ResultDocuments}})
async def get_all(
    task_id: Id,
    store: StoreDep,
    start: Annotated[int, Query(description="The first round wanted.", ge=0, lt=ROUND_LIMIT)] = 0,
    limit: Annotated[int, Query(description="How many rounds at most.", ge=1, le=_MOST)] = _MOST,
) -> Response:
    """The results of all rounds up to the latest that has a report; `next` is the start of the next page."""
    task = await _task(task_id, store)
    latest = await store.run(lambda opened: opened.latest_round(task.digest))
    end = min(latest + 1, start + limit)
    results = [store.document(await store.result(task, number)) for number in range(start, end)]
    following = b'"next":%d,' % end if start < end <= latest else b""
    return Response(b'{%b"results":[%b],"v":1}' % (following, b",".join(results)), media_type=JSON)


@result_routes.get("/all.csv", response_class=StreamingResponse, responses={200: {"content": {"text/csv": {}}}})
async def get_all_as_csv(task_id: Id, store: StoreDep) -> Response:
    """The estimates of all rounds as CSV: a line for each interval of each part, with exact numbers."""
    task = await _task(task_id, store)
    latest = await store.run(lambda opened: opened.latest_round(task.digest))

    async def lines() -> AsyncIterator[str]:
        yield f"{','.join(ESTIMATE_COLUMNS)}\n"
        for number in range(latest + 1):
            yield await store.run_slow(estimates_csv, await store.result(task, number))

    headers = {"Content-Disposition": f'attachment; filename="{task_id}.csv"'}
    return StreamingResponse(lines(), media_type="text/csv", headers=headers)


@result_routes.get("/{number}", responses={200: {"model": ResultDocument}})
async def get_round(task_id: Id, number: Round, store: StoreDep) -> Response:
    """The result of one round."""
    task = await _task(task_id, store)
    check_round(task, number)
    return Response(store.document(await store.result(task, number)), media_type=JSON)


@result_routes.get("/{number}/steps", responses={200: {"model": StepsDocument}})
async def get_steps(task_id: Id, number: Round, store: StoreDep) -> Response:
    """How far a round was at the end of each hour (UTC), or of each day once it is a week old.

    Each is the last estimate that was published before that time, and has at least ten more reports than the one
    before. The end of the current hour is still to come.
    """
    task = await _task(task_id, store)
    check_round(task, number)
    steps = await store.run(lambda opened: opened.steps(task.digest, number))
    facts = {"task": task.id, "digest": task.digest.hex(), "round": number}
    return answer({"v": 1, **facts, "steps": [_step_document(one) for one in steps]})


def _step_document(step: Step) -> dict[str, object]:
    document: dict[str, object] = {
        "until": f"{datetime.fromtimestamp(step.until, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "n": step.n,
    }
    if step.mean is not None:
        document["mean"] = step.mean
    if step.interval is not None:
        document |= {"interval": list(step.interval), "confidence": step.confidence}
    return document


async def _task(task_id: str, store: StoreService) -> Task:
    row = await store.run(partial(row_of, task_id=task_id))
    return store.task(row.digest, row.payload)


T = TypeVar("T")
_TOML = "application/toml"
_NAME = "task"  # of a draft, in messages

change_routes: APIRouter = APIRouter(prefix="/v1/tasks", tags=["changes"], dependencies=[Depends(may_write)])

_DRAFT = {
    "requestBody": {
        "required": True,
        "description": "The task, as in a file of `hush task publish`: JSON, or TOML.",
        "content": {JSON: {"schema": schema_ref("TaskDocument")}, _TOML: {"schema": {"type": "string"}}},
    }
}


@change_routes.post(
    "",
    status_code=201,
    openapi_extra=_DRAFT,
    responses={
        200: {"model": Change, "description": "The same task was there already, or is open again."},
        201: {"model": Change, "description": "It is in the store now."},
        409: CONFLICT,
    },
)
async def give_task(request: Request, store: StoreDep, service: ServiceDep) -> Response:
    """Add a task to the store: its aggregator publishes it within two seconds, or when it connects.

    The same draft again changes nothing; another draft with the same id is a conflict, which names both digests.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, _TOML):
        raise ProblemError(
            ProblemType.WRONG_MEDIA_TYPE, f"the Content-Type of a task must be {JSON} or {_TOML}; set it"
        )
    body = await request.body()

    def give() -> tuple[changes.Given, list[str]]:
        task = _read(body, kind)
        with open_editor(store.address) as opened:
            return changes.give(opened, task, _NAME, Origin.HTTP), [*warnings(task, datetime.now(UTC))]

    (done, task), told = await store.run_slow(give)
    request.state.task = task.id
    document = {"v": 1, "status": done.replace(" ", "_"), "task": task.id, "digest": task.digest.hex()}
    document |= {"mechanism": task.mechanism} | ({"warnings": told} if told else {})
    place = f"{service.root_path}/v1/tasks/{task.id}"
    return answer(document, 201, {"Location": place}) if done == changes.GIVEN else answer(document)


@change_routes.post("/{task_id}/withdraw", responses={200: {"model": Change}})
async def withdraw_task(task_id: Id, store: StoreDep) -> Response:
    """Clear the retained task, so that devices stop answering. Reports on their way still count."""
    row = await _changed(store, lambda opened: changes.withdraw(opened, task_id))
    return _said("withdrawn", row)


@change_routes.post("/{task_id}/close", responses={200: {"model": Change}})
async def close_task(task_id: Id, store: StoreDep) -> Response:
    """Close a task permanently: nothing more is counted, and its estimate is final."""
    row = await _changed(store, lambda opened: changes.close(opened, task_id))
    return _said("closed", row)


@change_routes.post("/{task_id}/rounds/{number}/close", responses={200: {"model": Change}})
async def close_round(task_id: Id, number: Round, store: StoreDep) -> Response:
    """Close one round of a task permanently."""
    row = await _changed(store, lambda opened: changes.close(opened, task_id, number))
    return _said("closed", row, {"round": number})


def _read(body: bytes, kind: str) -> Task:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(_NAME, "is not UTF-8 text") from error
    if (kind == JSON) != text.lstrip().startswith("{"):
        raise TaskError(_NAME, f"is not {'a JSON object' if kind == JSON else 'TOML'}; write the fields of a task")
    return read_draft(text, _NAME)


async def _changed(store: StoreService, change: Callable[[StoreEditor], T]) -> T:
    def run() -> T:
        with open_editor(store.address) as opened:
            return change(opened)

    return await store.run_slow(run)


def _said(status: str, row: TaskRow, facts: dict[str, int] | None = None) -> Response:
    return answer({"v": 1, "status": status, "task": row.id, "digest": row.digest.hex(), **(facts or {})})


_TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}

export_routes: APIRouter = APIRouter(prefix="/v1/tasks/{task_id}", tags=["reports"], dependencies=[Depends(may_export)])

RoundFilter = Annotated[
    int | None,
    Query(alias="round", description="Only this round, from 0; left out: all.", ge=0, lt=ROUND_LIMIT),
    BeforeValidator(only_digits),
]


@export_routes.get("/reports.csv", response_class=StreamingResponse, responses={200: {"content": {"text/csv": {}}}})
async def get_csv(task_id: Id, store: StoreDep, number: RoundFilter = None) -> Response:
    """The counted reports as CSV: round, random id, the integers of the body. There is neither sender nor time.

    Reports that are not released yet are among them. The header `Hush-Dropped-Rounds` has the rounds whose reports were
    dropped by the retention of the task or of the service.
    """
    return await _export(task_id, store, number, ".csv")


@export_routes.get(
    "/reports.parquet",
    response_class=StreamingResponse,
    responses={200: {"content": {_TYPES[".parquet"]: {}}}},
)
async def get_parquet(task_id: Id, store: StoreDep, number: RoundFilter = None) -> Response:
    """The same as Parquet, if pyarrow is installed."""
    try:
        need_arrow("reports.parquet")
    except OptionError as error:
        raise ProblemError(ProblemType.NO_PARQUET, str(error)) from error
    return await _export(task_id, store, number, ".parquet")


async def _export(task_id: str, store: StoreService, number: int | None, suffix: str) -> Response:
    store.exports.acquire()
    try:
        export = await store.run_slow(_Export, store, task_id, number, suffix)
    except BaseException:
        store.exports.release()
        raise
    return _Stream(export, suffix, f"{task_id}{suffix}")


class _Export:
    """An export of reports by its own connection to the store. Blocking calls run in a thread."""

    def __init__(self, store: StoreService, task_id: str, number: int | None, suffix: str) -> None:
        self._store = store
        self._opened = open_reader(store.address)
        try:
            task, reports, dropped = reports_of(self._opened, task_id, number)
            self.dropped: str = ",".join(map(str, dropped))
            self._portions: Iterator[bytes] = FORMATS[suffix](task, reports)
        except BaseException:
            self._opened.close()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (portion := await self._store.run_slow(next, self._portions, None)) is not None:
            yield portion

    async def close(self) -> None:
        """Close the connection and release the limit."""
        self._store.exports.release()
        await self._store.run_slow(self._opened.close)


class _Stream(StreamingResponse):
    """A response that closes its export. An interrupted response is visibly incomplete (chunked)."""

    def __init__(self, export: _Export, suffix: str, name: str) -> None:
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        if export.dropped:
            headers["Hush-Dropped-Rounds"] = export.dropped
        super().__init__(export, media_type=_TYPES[suffix], headers=headers)
        self._export = export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._export.close()


health_routes: APIRouter = APIRouter(tags=["health"])


@health_routes.get("/healthz", responses={200: {"model": Health}})
async def healthz(service: ServiceDep) -> Response:
    """The process lives, and so does the aggregator that it belongs to."""
    _check_intake(service)
    return answer({"status": "ok"})


def _check_intake(service: Service) -> None:
    if service.live is not None and service.live.silent_s > SILENT_S:
        raise ProblemError(
            ProblemType.INTAKE_SILENT,
            f"nothing was heard of the aggregator for {service.live.silent_s:.0f} s; restart it if that lasts",
        )


@health_routes.get("/readyz", responses={200: {"model": Health}})
async def readyz(service: ServiceDep, store: StoreDep) -> Response:
    """The store can be read, and an aggregator in the same process is connected to its broker.

    `warnings` has problems that another instance of the service would have, too.
    """
    _check_intake(service)
    try:
        await store.run(lambda opened: opened.changes())
    except StoreError as error:
        raise ProblemError(ProblemType.STORE_UNAVAILABLE, str(error)) from error
    intake = None if service.live is None else service.live.intake
    if intake is not None and not intake.connected:
        raise ProblemError(
            ProblemType.BROKER_UNAVAILABLE, "the aggregator is not connected to its broker; its log says why"
        )
    ready: dict[str, object] = {"status": "ok"}
    if intake is not None and intake.backlog is not None:
        counted, rate = intake.backlog.counted, round(intake.backlog.rate)
        ready["backlog"] = {"counted": counted, "reports_per_second": rate, "waiting": intake.stored}
    if service.live is not None and (limit := service.live.task_limit):
        ready["warnings"] = [limit]
    return answer(ready)


metrics_routes: APIRouter = APIRouter(tags=["metrics"])


class Metrics:
    """The metrics of an aggregator in the same process, or of a store alone."""

    def __init__(self, feed: ChangeFeed, service: Service, latency: RequestLatency) -> None:
        self._feed = feed
        self._service = service
        self._latency = latency
        self._stored = StoreFigures()
        self._exposition = Exposition(self._figures, version("hush-ldp"))

    async def text(self) -> bytes:
        """Return the metrics, at most a second old."""
        if self._service.live is None:
            found = await self._feed.overview()
            self._stored.look_at(found.counts.values(), found.refused)
        return self._exposition.text()

    def _figures(self) -> MetricValues:
        if self._service.live is not None:
            return replace(self._service.live.figures(), requests=self._latency.histograms)
        values = ServiceValues.read(self._service.store)
        return replace(self._stored.figures(), service=values, requests=self._latency.histograms)


@metrics_routes.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Counts by task and by reason, and the state of the intake, in the text format of Prometheus."""
    metrics = cast("Metrics", request.app.state.metrics)
    return Response(await metrics.text(), media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})


problem_routes: APIRouter = APIRouter(tags=["problems"])


@problem_routes.get(PROBLEMS_PATH, responses={200: {"model": ProblemKinds}})
async def list_problems() -> Response:
    """List the types of problems. The part of a `type` after `#` is its name here."""
    return answer(
        {"v": 1, "problems": {kind.slug: {"status": kind.status, "title": kind.title} for kind in ProblemType}}
    )
