"""Pages rendered once for what they show: viewers of the same figures get the same bytes."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from hush_aggregator.web.page.view import TaskView

_LIMIT = 16 * 1024 * 1024

Shown = Sequence[object]
"""What a page depends on, besides its address: values, and objects that never change."""


class RenderedPages:
    """The last page of each address, up to 16 MiB. For the thread of the event loop."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._pages: OrderedDict[str, tuple[Shown, bytes]] = OrderedDict()
        self._size = 0

    def get(self, address: str, shown: Shown, render: Callable[[], str]) -> bytes:
        """Return the page at an address, rendered again only if what it shows has changed."""
        there = self._pages.pop(address, None)
        if there is not None and _same(there[0], shown):
            self._pages[address] = there
            return there[1]
        if there is not None:
            self._size -= len(there[1])
        page = render().encode()
        self._pages[address] = shown, page
        self._size += len(page)
        while self._size > self._limit:
            self._size -= len(self._pages.popitem(last=False)[1][1])
        return page


def shown_of(view: TaskView) -> Shown:
    """Return what a page depends on of a task. Equal results are one object, because they are calculated once."""
    status = view.state, view.origin, view.status, view.ended, view.n, view.latest
    steps = (len(view.steps), view.steps[-1].until, view.steps[-1].n) if view.steps else ()
    return (*status, view.task, view.result, *view.rounds, None, *steps)


_VALUES = (int, str)


def _same(one: Shown, other: Shown) -> bool:
    """Whether all are the same: values by comparison, and objects by identity, which takes no time."""
    return len(one) == len(other) and all(
        here is there or (isinstance(here, _VALUES) and here == there) for here, there in zip(one, other, strict=True)
    )
