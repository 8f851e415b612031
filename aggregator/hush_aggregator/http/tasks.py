"""Tasks over HTTP: what is asked, and what is refused."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Response

from hush_aggregator.http.answers import JSON, answer
from hush_aggregator.http.problems import ProblemError
from hush_aggregator.http.service import Opened
from hush_aggregator.store.base import UNKNOWN, StoreReader, TaskRow
from hush_aggregator.task_facts import facts_of
from hush_common.refusal import Refusal

__all__ = ["Id", "router", "row_of"]

Id = Annotated[str, Path(description="Id of the task.", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]

router: APIRouter = APIRouter(prefix="/v1", tags=["tasks"])


@router.get("/tasks")
async def list_tasks(store: Opened) -> Response:
    """List the tasks: who gave them, what is to become of them, and who publishes them."""

    def read(opened: StoreReader) -> list[dict[str, str | int]]:
        return [facts_of(opened, row) for row in opened.task_rows()]

    return answer({"v": 1, "tasks": await store.run(read)})


@router.get("/tasks/{task_id}")
async def get_task(task_id: Id, store: Opened) -> Response:
    """One task of the list."""

    def read(opened: StoreReader) -> dict[str, str | int]:
        return facts_of(opened, row_of(task_id, forgotten=True)(opened))

    return answer({"v": 1, **await store.run(read)})


@router.get("/tasks/{task_id}/document")
async def get_document(task_id: Id, store: Opened) -> Response:
    """The task as it is published, byte for byte: its digest is that of these bytes."""
    row = await store.run(row_of(task_id))
    return Response(row.payload, media_type=JSON)


@router.get("/tasks/{task_id}/refusals")
async def get_refusals(task_id: Id, store: Opened) -> Response:
    """Reports refused under the name of a task, in all rounds, by reason."""

    def read(opened: StoreReader) -> dict[Refusal, int]:
        row_of(task_id, forgotten=True)(opened)
        return opened.refusals(task_id)

    return answer({"v": 1, "task": task_id, "refused": _named(await store.run(read))})


@router.get("/refusals")
async def list_refusals(store: Opened) -> Response:
    """All refusals, by task and reason, those of tasks that nobody published together; and what each reason means."""

    def read(opened: StoreReader) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
        tasks = {row.id: _named(opened.refusals(row.id)) for row in opened.task_rows()}
        return {task_id: refused for task_id, refused in tasks.items() if refused}, _named(opened.refusals(UNKNOWN))

    tasks, unknown = await store.run(read)
    meanings = {reason.value: reason.meaning for reason in Refusal}
    return answer({"v": 1, "tasks": tasks, "unknown_tasks": unknown, "meanings": meanings})


def row_of(task_id: str, *, forgotten: bool = False) -> Callable[[StoreReader], TaskRow]:
    """What finds a task in a store; where it is not there, the problem says so."""

    def find(store: StoreReader) -> TaskRow:
        row = store.task_row(task_id)
        if row is not None and (row.payload or forgotten):
            return row
        raise ProblemError(404, f"there is no task {task_id!r}; GET /v1/tasks lists those that there are")

    return find


def _named(refused: dict[Refusal, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in refused.items()}
