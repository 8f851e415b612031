"""Health: whether the process lives, and whether what it stands on is there."""

from fastapi import APIRouter, Response

from hush_aggregator.http.answers import answer
from hush_aggregator.http.documents import Health
from hush_aggregator.http.problems import Kind, ProblemError
from hush_aggregator.http.service import Opened, Served
from hush_common.errors import StoreError

__all__ = ["router"]

router: APIRouter = APIRouter(tags=["health"])


@router.get("/healthz", responses={200: {"model": Health}})
async def healthz() -> Response:
    """The process lives."""
    return answer({"status": "ok"})


@router.get("/readyz", responses={200: {"model": Health}})
async def readyz(service: Served, store: Opened) -> Response:
    """The store can be read, and an aggregator in the same process is connected to its broker.

    `warnings` has what is wrong all the same: nothing that another instance of the service would do better.
    """
    try:
        await store.run(lambda opened: opened.changes())
    except StoreError as error:
        raise ProblemError(Kind.STORE_UNAVAILABLE, str(error)) from error
    intake = None if service.live is None else service.live.intake
    if intake is not None and not intake.connected:
        raise ProblemError(Kind.BROKER_UNAVAILABLE, "the aggregator is not connected to its broker; its log says why")
    ready: dict[str, object] = {"status": "ok"}
    if intake is not None and intake.backlog is not None:
        counted, rate = intake.backlog.counted, round(intake.backlog.rate)
        ready["backlog"] = {"counted": counted, "reports_per_second": rate, "waiting": intake.stored}
    if service.live is not None and (limit := service.live.task_limit):
        ready["warnings"] = [limit]
    return answer(ready)
