"""Results over HTTP: the documents of `hush results --json`, of any round."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from hush_aggregator.http.answers import answer
from hush_aggregator.http.documents import ResultDocument, ResultDocuments
from hush_aggregator.http.reading import Reading
from hush_aggregator.http.service import Opened
from hush_aggregator.http.tasks import Id
from hush_aggregator.task_changes import check_round, row_of
from hush_common.task import ROUND_LIMIT, Task

__all__ = ["Round", "router"]

_MOST = 100  # rounds in one answer

Round = Annotated[int, Path(description="The round, counted from 0.", ge=0, lt=ROUND_LIMIT)]

router: APIRouter = APIRouter(prefix="/v1/tasks/{task_id}/rounds", tags=["results"])


@router.get("/latest", responses={200: {"model": ResultDocument}})
async def get_latest(task_id: Id, store: Opened) -> Response:
    """The result of the latest round that has a report, of the first if none has."""
    return answer((await store.result(await _task(task_id, store))).to_document())


@router.get("/all", responses={200: {"model": ResultDocuments}})
async def get_all(
    task_id: Id,
    store: Opened,
    start: Annotated[int, Query(description="The first round wanted.", ge=0, lt=ROUND_LIMIT)] = 0,
    limit: Annotated[int, Query(description="How many rounds at most.", ge=1, le=_MOST)] = _MOST,
) -> Response:
    """The results of all rounds up to the latest that has a report; `next` is where to start where there are more."""
    task = await _task(task_id, store)
    latest = await store.run(lambda opened: opened.latest_round(task.digest))
    end = min(latest + 1, start + limit)
    results = [(await store.result(task, number)).to_document() for number in range(start, end)]
    return answer({"v": 1, "results": results, **({"next": end} if start < end <= latest else {})})


@router.get("/{number}", responses={200: {"model": ResultDocument}})
async def get_round(task_id: Id, number: Round, store: Opened) -> Response:
    """The result of one round."""
    task = await _task(task_id, store)
    check_round(task, number)
    return answer((await store.result(task, number)).to_document())


async def _task(task_id: str, store: Reading) -> Task:
    row = await store.run(partial(row_of, task_id=task_id))
    return store.task(row.digest, row.payload)
