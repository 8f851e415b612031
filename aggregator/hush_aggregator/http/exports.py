"""Exports over HTTP: single reports, as `hush export` writes them, and only for whoever has the token."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hush_aggregator.exporting import FORMATS, need_arrow, reports_of
from hush_aggregator.http.permission import may_export
from hush_aggregator.http.problems import Kind, ProblemError
from hush_aggregator.http.reading import Reading
from hush_aggregator.http.service import Opened
from hush_aggregator.http.tasks import Id
from hush_aggregator.store import SqliteReader
from hush_common.errors import OptionError
from hush_common.task import ROUND_LIMIT

__all__ = ["router"]

_TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}

router: APIRouter = APIRouter(prefix="/v1/tasks/{task_id}", tags=["reports"], dependencies=[Depends(may_export)])

Round = Annotated[
    int | None, Query(alias="round", description="Only this round, from 0; left out: all.", ge=0, lt=ROUND_LIMIT)
]


@router.get("/reports.csv", response_class=StreamingResponse, responses={200: {"content": {"text/csv": {}}}})
async def get_csv(task_id: Id, store: Opened, number: Round = None) -> Response:
    """The counted reports as CSV: round, random id, the integers of the body. There is neither sender nor time."""
    return await _export(task_id, store, number, ".csv")


@router.get(
    "/reports.parquet",
    response_class=StreamingResponse,
    responses={200: {"content": {_TYPES[".parquet"]: {}}}},
)
async def get_parquet(task_id: Id, store: Opened, number: Round = None) -> Response:
    """The same as Parquet, where pyarrow is installed."""
    try:
        need_arrow("reports.parquet")
    except OptionError as error:
        raise ProblemError(Kind.NO_PARQUET, str(error)) from error
    return await _export(task_id, store, number, ".parquet")


async def _export(task_id: str, store: Reading, number: int | None, suffix: str) -> Response:
    store.exports.take()
    try:
        export = await store.aside(_Export, store, task_id, number, suffix)
    except BaseException:
        store.exports.leave()
        raise
    return _Stream(export, suffix, f"{task_id}{suffix}")


class _Export:
    """Reports on their way out, from a connection to the store of their own. What blocks is called in a thread.

    Raises:
        StoreError: the store cannot be read.
        TaskError: no such task or round.
    """

    def __init__(self, store: Reading, task_id: str, number: int | None, suffix: str) -> None:
        self._store = store
        self._opened = SqliteReader(store.path)
        try:
            self._portions: Iterator[bytes] = FORMATS[suffix](*reports_of(self._opened, task_id, number))
        except BaseException:
            self._opened.close()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (portion := await self._store.aside(next, self._portions, None)) is not None:
            yield portion

    async def close(self) -> None:
        """Give back what it has taken."""
        self._store.exports.leave()
        await self._store.aside(self._opened.close)


class _Stream(StreamingResponse):
    """The answer, which closes the export however it ends. One that breaks off is not complete, and says so."""

    def __init__(self, export: _Export, suffix: str, name: str) -> None:
        super().__init__(
            export, media_type=_TYPES[suffix], headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )
        self._export = export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._export.close()
