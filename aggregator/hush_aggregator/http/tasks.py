"""Tasks over HTTP: what is asked, and what is refused."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Response

from hush_aggregator.http.answers import JSON, answer
from hush_aggregator.http.documents import Refusals, RefusalsOfTask, TaskFacts, TaskList
from hush_aggregator.http.service import Opened
from hush_aggregator.http.task_documents import TaskDocument
from hush_aggregator.store.base import UNKNOWN, StoreReader
from hush_aggregator.task_changes import row_of
from hush_aggregator.task_facts import facts_of
from hush_common.wire import Refusal

__all__ = ["Id", "router"]

Id = Annotated[str, Path(description="Id of the task.", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]

router: APIRouter = APIRouter(prefix="/v1", tags=["tasks"])


@router.get("/tasks", responses={200: {"model": TaskList}})
async def list_tasks(store: Opened) -> Response:
    """List the tasks: who gave them, what is to become of them, and who publishes them."""

    def read(opened: StoreReader) -> list[dict[str, str | int]]:
        return [facts_of(opened, row) for row in opened.task_rows()]

    return answer({"v": 1, "tasks": await store.run(read)})


@router.get("/tasks/{task_id}", responses={200: {"model": TaskFacts}})
async def get_task(task_id: Id, store: Opened) -> Response:
    """One task of the list."""

    def read(opened: StoreReader) -> dict[str, str | int]:
        return facts_of(opened, row_of(opened, task_id, forgotten=True))

    return answer({"v": 1, **await store.run(read)})


@router.get("/tasks/{task_id}/document", responses={200: {"model": TaskDocument}})
async def get_document(task_id: Id, store: Opened) -> Response:
    """The task as it is published, byte for byte: its digest is that of these bytes."""
    row = await store.run(partial(row_of, task_id=task_id))
    return Response(row.payload, media_type=JSON)


@router.get("/tasks/{task_id}/refusals", responses={200: {"model": RefusalsOfTask}})
async def get_refusals(task_id: Id, store: Opened) -> Response:
    """Reports refused under the name of a task, in all rounds, by reason."""

    def read(opened: StoreReader) -> dict[Refusal, int]:
        row_of(opened, task_id, forgotten=True)
        return opened.refusals(task_id)

    return answer({"v": 1, "task": task_id, "refused": _named(await store.run(read))})


@router.get("/refusals", responses={200: {"model": Refusals}})
async def list_refusals(store: Opened) -> Response:
    """All refusals, by task and reason, those of tasks that nobody published together; and what each reason means."""

    def read(opened: StoreReader) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
        tasks = {row.id: _named(opened.refusals(row.id)) for row in opened.task_rows()}
        return {task_id: refused for task_id, refused in tasks.items() if refused}, _named(opened.refusals(UNKNOWN))

    tasks, unknown = await store.run(read)
    meanings = {reason.value: reason.meaning for reason in Refusal}
    return answer({"v": 1, "tasks": tasks, "unknown_tasks": unknown, "meanings": meanings})


def _named(refused: dict[Refusal, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in refused.items()}
