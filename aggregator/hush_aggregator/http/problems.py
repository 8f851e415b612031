"""Problem documents (RFC 9457): every error over HTTP has one. It says what was wrong, and what to do."""

import json
from enum import Enum
from http import HTTPStatus

from starlette.responses import Response

from hush_common.errors import printable

__all__ = ["PROBLEM", "PROBLEMS_PATH", "Kind", "ProblemError", "problem"]

PROBLEM = "application/problem+json"
"""The media type of a problem."""

PROBLEMS_PATH = "/v1/problems"
"""Where a service lists the kinds of problems. The `type` of a problem is this path and the name of its kind."""


class Kind(Enum):
    """The kinds of problems: a name, which never changes, a status, and a title.

    A program tells problems apart by `type`. Several kinds can have one status.
    """

    NOT_HTTP = "not-http", 400, "The request is not HTTP/1.1"
    TOKEN_MISSING = "token-missing", 401, "The request needs the token of the service"
    TOKEN_WRONG = "token-wrong", 401, "The token is not that of the service"
    NO_TOKEN_SET = "no-token-set", 403, "The service was started without a token"
    READ_ONLY = "read-only", 403, "The service only reads"
    OTHER_ORIGIN = "other-origin", 403, "The request comes from a page of another place"
    UNKNOWN_PATH = "unknown-path", 404, "The service has no such path"
    UNKNOWN_TASK = "unknown-task", 404, "The store has no such task"
    UNKNOWN_ROUND = "unknown-round", 404, "The task has no such round"
    WRONG_METHOD = "wrong-method", 405, "The path does not take this method"
    TASK_EXISTS = "task-exists", 409, "Another task has this id"
    TASK_CLOSED = "task-closed", 409, "The task is closed"
    BODY_TOO_LONG = "body-too-long", 413, "The body is too long"
    WRONG_MEDIA_TYPE = "wrong-media-type", 415, "The body has another media type"
    UNKNOWN_HOST = "unknown-host", 421, "Host does not name this service"
    INVALID_TASK = "invalid-task", 422, "The body is not a valid task"
    INVALID_PARAMETER = "invalid-parameter", 422, "A parameter is not valid"
    OVER_SHARE = "over-share", 429, "The address has used up its share"
    HEAD_TOO_LARGE = "head-too-large", 431, "The head of the request is too large"
    INTERNAL = "internal", 500, "The service has an error of its own"
    NO_PARQUET = "no-parquet", 501, "The service cannot write Parquet"
    STORE_UNAVAILABLE = "store-unavailable", 503, "The store cannot be read"
    BROKER_UNAVAILABLE = "broker-unavailable", 503, "The aggregator is not connected to its broker"
    TOO_MANY_REQUESTS = "too-many-requests", 503, "Too many requests are under way"
    TOO_MANY_STREAMS = "too-many-streams", 503, "Too many streams of events are open"
    TOO_MANY_EXPORTS = "too-many-exports", 503, "Too many exports are under way"
    TOO_SLOW = "too-slow", 503, "The answer took too long"

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.slug: str = slug
        self.status: int = status
        self.title: str = title

    @property
    def type(self) -> str:
        """The URI reference in a problem document."""
        return f"{PROBLEMS_PATH}#{self.slug}"


class ProblemError(Exception):
    """A request that the service refuses or cannot answer.

    Args:
        kind: of the problem.
        detail: what is wrong, and what to do.
        headers: further headers of the answer.
        members: further members of the document.
    """

    def __init__(
        self, kind: Kind, detail: str, *, headers: dict[str, str] | None = None, members: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers: dict[str, str] = headers or {}
        self.members: dict[str, str] = members or {}

    @property
    def answer(self) -> Response:
        """The answer with the problem document."""
        return problem(self.kind, self.detail, headers=self.headers, members=self.members)


def problem(
    kind: Kind | HTTPStatus,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    members: dict[str, str] | None = None,
) -> Response:
    """Return the answer with a problem document: see `ProblemError`. A mere status has the type `about:blank`."""
    if isinstance(kind, Kind):
        about: dict[str, object] = {"type": kind.type, "title": kind.title, "status": kind.status}
    else:
        about = {"type": "about:blank", "title": kind.phrase, "status": int(kind)}
    document = {**about, "detail": printable(detail), **(members or {})}
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    status = kind.status if isinstance(kind, Kind) else int(kind)
    return Response(body, status, headers, PROBLEM)
