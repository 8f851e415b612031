"""The kinds of problems over HTTP: what each `type` in a problem document means."""

from fastapi import APIRouter, Response

from hush_aggregator.http.answers import answer
from hush_aggregator.http.documents import ProblemKinds
from hush_aggregator.http.problems import PROBLEMS_PATH, Kind

__all__ = ["router"]

router: APIRouter = APIRouter(tags=["problems"])


@router.get(PROBLEMS_PATH, responses={200: {"model": ProblemKinds}})
async def list_problems() -> Response:
    """List the kinds of problems. The part of a `type` behind `#` is the name of its kind here."""
    return answer({"v": 1, "problems": {kind.slug: {"status": kind.status, "title": kind.title} for kind in Kind}})
