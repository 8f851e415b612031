"""Callers: who may ask. A page of another site in somebody's browser may not, and reads nothing.

A service on the loopback can be reached by any page that its user opens: under a name that points to 127.0.0.1 from one
moment to the next (DNS rebinding), or by a request that the browser makes for it. So `Host` must be a name of this
service, `Origin` the same place, and `Sec-Fetch-Site`, where a browser says it, must say so too, but for a link that
somebody follows.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from hush_aggregator.http.bearer import Token
from hush_aggregator.http.problems import Kind, ProblemError
from hush_aggregator.http.service import Service

__all__ = ["check_place", "check_token", "headers_of"]

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_BEARER = {"WWW-Authenticate": 'Bearer realm="hush"'}
_LOGIN = {"WWW-Authenticate": 'Bearer realm="hush", Basic realm="hush", charset="UTF-8"'}


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """The headers of a request by their names in small letters."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return found


def check_place(service: Service, headers: Mapping[str, list[str]]) -> None:
    """Let nobody in who means another place, or comes from one.

    Raises:
        ProblemError: it is so.
    """
    host = headers.get("host", [])
    found = _HOST.fullmatch(host[0].lower()) if len(host) == 1 else None
    if found is None or not _is_here(service, found["name"]):
        raise ProblemError(
            Kind.UNKNOWN_HOST,
            "the name in Host is none of this service; ask by its address, or name it with --http-host (--host)",
        )
    here = {f"{scheme}://{host[0].lower()}" for scheme in ("http", "https")}
    if any(origin.lower() not in here for origin in headers.get("origin", [])):
        raise ProblemError(Kind.OTHER_ORIGIN, "pages of other places may not ask this service")
    if {"cross-site", "same-site"} & set(headers.get("sec-fetch-site", [])) and not _is_followed(headers):
        raise ProblemError(Kind.OTHER_ORIGIN, "pages of other places may not ask this service")


def check_token(token: Token | None, headers: Mapping[str, list[str]], *, login: bool = False) -> None:
    """Let nobody pass who does not have the token.

    Args:
        token: the token; None where there is none, and nobody passes.
        headers: of the request.
        login: whether it may also be the password of any user, for browsers.

    Raises:
        ProblemError: it is not there, or another one. What was sent is not repeated.
    """
    if token is None:
        raise ProblemError(Kind.NO_TOKEN_SET, "this service was started without a token, and gives this to nobody")
    given = headers.get("authorization", [])
    remedy = "send the header Authorization: Bearer, and the token"
    challenge = _LOGIN if login else _BEARER
    if not given:
        raise ProblemError(Kind.TOKEN_MISSING, f"this needs the token of the service; {remedy}", headers=challenge)
    found = _sent(given[0], login=login) if len(given) == 1 else None
    if found is None or not token.fits(found):
        raise ProblemError(Kind.TOKEN_WRONG, f"this is not the token of the service; {remedy}", headers=challenge)


def _sent(given: str, *, login: bool) -> str | None:
    """The token in a header."""
    scheme, _, text = given.partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if login and scheme.lower() == "basic":
        try:
            return base64.b64decode(text.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _is_here(service: Service, name: str) -> bool:
    if name in service.hosts:
        return True
    if not service.any_address:
        return False
    try:  # a name can be made to point anywhere; an address means itself
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_followed(headers: Mapping[str, list[str]]) -> bool:
    """Whether somebody follows a link: the browser shows what comes, and hands it to no other page."""
    return headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == ["document"]
