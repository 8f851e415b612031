"""Session: what an open gateway holds, and the order in which it is released."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hush_client.background_tasks import Background
from hush_client.desk import Desk
from hush_client.sending.sender import Sender
from hush_client.sending.transport import Transport
from hush_client.shelving import open_shelf
from hush_client.state.database import State
from hush_client.state.lock import Lock
from hush_client.terms import Terms
from hush_common.rng import ReportRng

__all__ = ["Session", "open_session"]


@dataclass(frozen=True, slots=True)
class Session:
    """What there is between the opening and the close.

    Args:
        desk: where tasks are asked for, questions decided, and answers stored.
        background: the sender, and whoever answers from a source.
        sources: the devices and tasks that are answered from one.
    """

    desk: Desk
    background: Background
    sources: set[tuple[str, str]] = field(default_factory=set)


@asynccontextmanager
async def open_session(terms: Terms, transport: Transport, directory: Path, rng: ReportRng) -> AsyncIterator[Session]:
    """Lock and open the state, and keep sending from it.

    Raises:
        StateError: the state cannot be opened or trusted, or another gateway is sending from it.
    """
    background = Background()
    async with AsyncExitStack() as stack:
        lock = await Lock.acquire(directory)
        stack.callback(lock.release)
        state = await State.open(directory)
        stack.push_async_callback(state.close)
        shelving = await stack.enter_async_context(open_shelf(directory))
        stack.push_async_callback(background.stop)
        sender = Sender(transport, state, shelving.catalogue, terms.clock, terms.keeping)
        background.start(shelving.run(), "hush-shelve")
        background.start(sender.run(), f"hush-sender-{terms.name}")
        yield Session(Desk(terms, shelving, state, sender, rng), background)
    background.check()
