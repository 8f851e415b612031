"""Service: what is served over HTTP, and to whom. Routers reach it as a dependency."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol, cast

from fastapi import Depends, Request

from hush_aggregator.estimating import Estimator
from hush_aggregator.http.bearer import Token
from hush_aggregator.http.client_address import Network
from hush_aggregator.http.reading import Reading
from hush_aggregator.intake import Intake
from hush_aggregator.metrics.figures import Figures

__all__ = ["LOOPBACK", "Live", "Opened", "Served", "Service"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names under which a program of the same machine is asked."""


class Live(Protocol):
    """The aggregator that runs in the same process."""

    def figures(self) -> Figures:
        """What its metrics say now; to be asked in the event loop."""
        ...

    @property
    def intake(self) -> Intake:
        """The state of its intake; to be read in the event loop."""
        ...

    @property
    def task_limit(self) -> str:
        """Why published tasks are not counted for lack of room; empty if none is."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """What is served, and to whom.

    Args:
        store: the file of the store; it may be missing, and come later.
        hosts: names that a request may ask for (its `Host`), in small letters, without a port.
        any_address: whether it may also ask for any address, as where all interfaces are listened on.
        token: what writing and single reports need; None where nobody may do either.
        write: whether tasks may be given, withdrawn and closed.
        guarded: whether reading needs the token too.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates; None for threads.
        live: the aggregator beside it; None where there is none.
        trusted_proxies: addresses of proxies, of whose requests the forwarded address counts.
    """

    store: Path
    hosts: frozenset[str] = LOOPBACK
    any_address: bool = False
    token: Token | None = field(default=None, repr=False)
    write: bool = False
    guarded: bool = False
    confidence: float = 0.95
    estimator: Estimator | None = None
    live: Live | None = None
    trusted_proxies: tuple[Network, ...] = ()


# Without `async`, FastAPI would call these in a thread for each request, which keeps its place meanwhile: requests
# that are refused without a token would then use up the share of their address.
async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _reading(request: Request) -> Reading:
    return cast("Reading", request.app.state.reading)


Served = Annotated[Service, Depends(_service)]
"""In the parameters of an endpoint: the service."""

Opened = Annotated[Reading, Depends(_reading)]
"""In the parameters of an endpoint: its store."""
