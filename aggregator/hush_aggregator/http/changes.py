"""Changes over HTTP: tasks are given, withdrawn and closed in the store; its aggregator publishes what follows."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from fastapi import APIRouter, Depends, Request, Response

from hush_aggregator import task_changes
from hush_aggregator.explain_task import warnings
from hush_aggregator.http.answers import JSON, answer
from hush_aggregator.http.description import CONFLICT, form
from hush_aggregator.http.documents import Change
from hush_aggregator.http.permission import may_write
from hush_aggregator.http.problems import Kind, ProblemError
from hush_aggregator.http.reading import Reading
from hush_aggregator.http.results import Round
from hush_aggregator.http.service import Opened
from hush_aggregator.http.tasks import Id
from hush_aggregator.store import Origin, SqliteEditor
from hush_aggregator.store.base import TaskRow
from hush_common.errors import TaskError
from hush_common.task import Task, read_draft

__all__ = ["router"]

T = TypeVar("T")
_TOML = "application/toml"
_NAME = "task"  # of a draft, in messages

router: APIRouter = APIRouter(prefix="/v1/tasks", tags=["changes"], dependencies=[Depends(may_write)])

_DRAFT = {
    "requestBody": {
        "required": True,
        "description": "The task, as in a file of `hush task publish`: JSON, or TOML.",
        "content": {JSON: {"schema": form("TaskDocument")}, _TOML: {"schema": {"type": "string"}}},
    }
}


@router.post(
    "",
    status_code=201,
    openapi_extra=_DRAFT,
    responses={
        200: {"model": Change, "description": "The same task was there already, or is open again."},
        201: {"model": Change, "description": "It is in the store now."},
        409: CONFLICT,
    },
)
async def give_task(request: Request, store: Opened) -> Response:
    """Give a task to the store: its aggregator publishes it within two seconds, or once it is connected.

    The same draft again changes nothing; another one under the same id is a conflict, which names both digests.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, _TOML):
        raise ProblemError(Kind.WRONG_MEDIA_TYPE, f"a task is sent as {JSON} or {_TOML}; say so in Content-Type")
    body = await request.body()

    def give() -> tuple[task_changes.Given, list[str]]:
        task = _read(body, kind)
        with SqliteEditor(store.path) as opened:
            return task_changes.give(opened, task, _NAME, Origin.HTTP), [*warnings(task, datetime.now(UTC))]

    (done, task), told = await store.aside(give)
    document = {"v": 1, "status": done.replace(" ", "_"), "task": task.id, "digest": task.digest.hex()}
    document |= {"mechanism": task.mechanism} | ({"warnings": told} if told else {})
    place = f"/v1/tasks/{task.id}"
    return answer(document, 201, {"Location": place}) if done == task_changes.GIVEN else answer(document)


@router.post("/{task_id}/withdraw", responses={200: {"model": Change}})
async def withdraw_task(task_id: Id, store: Opened) -> Response:
    """Ask nobody any more: the retained task is cleared. Reports that are under way still count."""
    row = await _changed(store, lambda opened: task_changes.withdraw(opened, task_id))
    return _said("withdrawn", row)


@router.post("/{task_id}/close", responses={200: {"model": Change}})
async def close_task(task_id: Id, store: Opened) -> Response:
    """Close a task for good: nothing more is counted, and its estimate is final."""
    row = await _changed(store, lambda opened: task_changes.close(opened, task_id))
    return _said("closed", row)


@router.post("/{task_id}/rounds/{number}/close", responses={200: {"model": Change}})
async def close_round(task_id: Id, number: Round, store: Opened) -> Response:
    """Close one round of a task for good."""
    row = await _changed(store, lambda opened: task_changes.close(opened, task_id, number))
    return _said("closed", row, {"round": number})


def _read(body: bytes, kind: str) -> Task:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(_NAME, "is not UTF-8 text") from error
    if (kind == JSON) != text.lstrip().startswith("{"):
        raise TaskError(_NAME, f"is not {'a JSON object' if kind == JSON else 'TOML'}; write the fields of a task")
    return read_draft(text, _NAME)


async def _changed(store: Reading, change: Callable[[SqliteEditor], T]) -> T:
    def run() -> T:
        with SqliteEditor(store.path) as opened:
            return change(opened)

    return await store.aside(run)


def _said(status: str, row: TaskRow, facts: dict[str, int] | None = None) -> Response:
    return answer({"v": 1, "status": status, "task": row.id, "digest": row.digest.hex(), **(facts or {})})
