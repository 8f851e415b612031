"""Problems: every error over HTTP as one document (RFC 9457): what was wrong, and what to do. Never more than that."""

import json
from http import HTTPStatus

from starlette.responses import Response

from hush_common.errors import printable

__all__ = ["PROBLEM", "ProblemError", "problem"]

PROBLEM = "application/problem+json"
"""The media type of a problem."""


class ProblemError(Exception):
    """A request that cannot be answered as it was meant.

    Args:
        status: of the answer.
        detail: what was wrong, and the remedy.
        headers: further ones of the answer.
        members: further ones of the document.
    """

    def __init__(
        self, status: int, detail: str, *, headers: dict[str, str] | None = None, members: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers: dict[str, str] = headers or {}
        self.members: dict[str, str] = members or {}

    @property
    def answer(self) -> Response:
        """What is answered."""
        return problem(self.status, self.detail, headers=self.headers, members=self.members)


def problem(
    status: int, detail: str, *, headers: dict[str, str] | None = None, members: dict[str, str] | None = None
) -> Response:
    """The answer with a problem document: see `ProblemError`."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": printable(detail),
        **(members or {}),
    }
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(body, status, headers, PROBLEM)
