"""Permission: what only whoever has the token may do. It is looked at before anything that was sent is read."""

from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from hush_aggregator.http.callers import check_token, headers_of
from hush_aggregator.http.problems import Kind, ProblemError
from hush_aggregator.http.service import Served

__all__ = ["may_export", "may_write"]

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="The token that the service was started with.")
_Described = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


async def may_export(request: Request, service: Served, _: _Described) -> None:
    """Let nobody have single reports who does not have the token.

    Raises:
        ProblemError: it is so.
    """
    check_token(service.token, headers_of(request.scope["headers"]))


async def may_write(request: Request, service: Served, _: _Described) -> None:
    """Let nobody write who does not have the token, and nobody at all where writing was not asked for.

    Raises:
        ProblemError: it is so.
    """
    if not service.write:
        raise ProblemError(
            Kind.READ_ONLY, "this service only reads; who runs it starts it with --http-write (hush http: --write)"
        )
    check_token(service.token, headers_of(request.scope["headers"]))
