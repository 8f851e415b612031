"""Lists of tasks and of categories: pages, searches and orders that need no JavaScript; and no slow estimate."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from http_world import Client, Service, asked, count_bodies
from page_tasks import count

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimate.process import Failure, ThreadEstimator
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store import TaskState
from hush_common.task import make_task

pytestmark = pytest.mark.virtual_time

LISTED = 100  # tasks on a page of a long list; up to 24 are cards
PARTS = 256  # categories on a page


def bit(task_id: str, **fields: object) -> Task:
    return make_task({"id": task_id, "epsilon": "1", "domain": {"kind": "bit"}, **fields})


def add(path: Path, *tasks: Task, reports: int = 0) -> Path:
    with SqliteStore(path) as store:
        for task in tasks:
            store.add_task(task)
            if reports:
                count_bodies(store, task, [1] * reports)
    return path


async def listed(client: Client, query: str = "") -> list[str]:
    """The tasks of a page of the list."""
    return re.findall(r' id="task-([a-z0-9-]+)"', await client.page(f"/?{query}"))


@pytest.mark.medium
async def test_pages_have_every_task_once_and_closed_ones_last(tmp_path: Path) -> None:
    tasks = [bit(f"t{k:03}") for k in range(2 * LISTED + 1)]
    with SqliteStore(add(tmp_path / "store", *tasks)) as store:
        store.close_task("t000")
    async with asked(Service(tmp_path / "store")) as client:
        pages = [await listed(client, f"page={number}") for number in (1, 2, 3, 99)]
    assert pages[0] + pages[1] + pages[2] == [*(task.id for task in tasks[1:]), "t000"]
    assert [len(one) for one in pages] == [LISTED, LISTED, 1, 1]  # after the last page comes the last


@pytest.mark.medium
async def test_tasks_are_found_by_their_words_and_state_and_sorted(tmp_path: Path) -> None:
    heights, bus, ways = bit("heights", title="Größe", purpose="Better BUSES"), bit("a-bus"), bit("z", title="Ways")
    with SqliteStore(add(tmp_path / "store", heights, bus, ways)) as store:
        for task, number in ((ways, 3), (heights, 2)):
            count_bodies(store, task, [1] * number)
        store.close_task("a-bus")
        store.set_state("z", TaskState.WITHDRAWN)
    cases = {
        "": ["heights", "z", "a-bus"],
        "find=+bus+": ["heights", "a-bus"],
        "find=GRÖSSE": ["heights"],
        "find=epsilon": [],  # words of the task, not of its document
        "order=name": ["a-bus", "heights", "z"],
        "order=reports": ["z", "heights", "a-bus"],
        "state=open": ["heights"],
        "state=withdrawn": ["z"],
        "state=ended": ["a-bus"],
        "state=ended&find=ways": [],
    }
    async with asked(Service(tmp_path / "store")) as client:
        assert {query: await listed(client, query) for query in cases} == cases
        assert (await client.get("/?order=luck")).status_code == 422


# Estimates that are not ready


class Held(ThreadEstimator):
    """Makes no estimate of a held task before it is released, and knows which were asked for."""

    def __init__(self, *held: str) -> None:
        self.held = held
        self.asked: list[tuple[str, int]] = []
        self.released = asyncio.Event()
        self.now = self.most = 0

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        self.asked.append((task.id, tally.n))
        self.now += 1
        self.most = max(self.most, self.now)
        if task.id in self.held:
            await self.released.wait()
        self.now -= 1
        return await super().__call__(task, tally, confidence)


@pytest.mark.medium
async def test_a_list_has_its_counts_before_any_estimate_is_made(tmp_path: Path) -> None:
    for number in (3, 30):  # waited for in vain, and too many to wait for
        tasks = [bit(f"t{k:02}") for k in range(number)]
        estimator = Held(*(task.id for task in tasks))
        path = add(tmp_path / f"store-{number}", *tasks, reports=7)
        async with asked(Service(path, estimator=estimator)) as client:
            first = await client.page("/")
            assert first.count('data-figure="n"') == number
            assert 'data-figure="mean"' not in first
            estimator.released.set()
            await asyncio.sleep(10)
            assert (await client.page("/")).count('data-figure="mean"') == number


@pytest.mark.medium
async def test_a_slow_estimate_shows_the_last_one_of_the_same_state(tmp_path: Path) -> None:
    task, estimator = bit("t"), Held()
    with SqliteStore(add(tmp_path / "store", task, reports=50)) as store:
        async with asked(Service(tmp_path / "store", estimator=estimator)) as client:
            assert 'data-figure="mean"' in await client.page("/")
            estimator.held = ("t",)
            count_bodies(store, task, [1] * 20)
            assert 'value="50" data-figure="n"' in await client.page("/")
            store.close_task("t")  # the last estimate is not that of the closed task
            assert 'data-figure="mean"' not in await client.page("/")
            estimator.released.set()


@pytest.mark.medium
async def test_no_estimate_is_made_twice_for_pages_documents_and_events(tmp_path: Path) -> None:
    estimator = Held()
    path = add(tmp_path / "store", bit("a"), bit("b"), reports=7)
    async with asked(Service(path, estimator=estimator)) as client:
        places = ["/", "/tasks/a", "/tasks/a?round=0", "/v1/tasks/a/rounds/latest", "/v1/tasks/b/rounds/all"]
        await asyncio.gather(*(client.get(place) for place in places * 4))
        events = client.app.state.feed.follow(None)
        assert {(await anext(events)).task for _ in range(3)} == {"", "a", "b"}
        assert sorted(estimator.asked) == [("a", 7), ("b", 7)]
        with SqliteStore(path) as store:
            store.close_task("a")  # nothing else is counted
        assert (await client.document("/v1/tasks/a/rounds/0"))["final"]


@pytest.mark.medium
async def test_readers_of_a_task_that_counts_share_its_next_estimate(tmp_path: Path) -> None:
    """However many ask while each read finds more reports, one estimate is made at a time, and none is too old."""
    task, estimator = bit("t"), Held("t")
    path = add(tmp_path / "store", task, reports=7)
    async with asked(Service(path, estimator=estimator)) as client:
        place = "/v1/tasks/t/rounds/latest"
        first = asyncio.create_task(client.document(place))
        await asyncio.sleep(0.1)
        with SqliteStore(path) as store:
            count_bodies(store, task, [1])
        others = [asyncio.create_task(client.document(place)) for _ in range(20)]
        await asyncio.sleep(0.1)
        others[3].cancel()
        estimator.released.set()
        assert (await first)["n"] == 7
        found = await asyncio.gather(*others, return_exceptions=True)
        assert [one["n"] for one in found if isinstance(one, dict)] == [8] * 19
    assert estimator.asked == [("t", 7), ("t", 8)]


@pytest.mark.medium
async def test_a_slow_estimate_delays_no_other_and_quick_ones_take_turns(tmp_path: Path) -> None:
    tasks = [bit(f"t{k}") for k in range(8)]
    estimator = Held("t0")
    async with asked(Service(add(tmp_path / "store", *tasks, reports=3), estimator=estimator)) as client:
        places = [f"/v1/tasks/{task.id}/rounds/latest" for task in tasks]
        slow = asyncio.create_task(client.document(places[0]))
        found = await asyncio.gather(*(client.document(place) for place in places[1:]))
        assert [one["n"] for one in found] == [3] * 7
        assert not slow.done()
        assert estimator.most == 2
        estimator.released.set()
        assert (await slow)["n"] == 3


# Many categories

LABELS = [f"Street {number}" for number in range(598)] + ["Übergang <Süd>", "5 % & more"]


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streets") / "hush.sqlite"
    with SqliteStore(path) as store:
        for name, labels in (("many", LABELS), ("few", LABELS[:2])):
            task = make_task({"id": name, "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
            store.add_task(task)
            count(store, task, [LABELS[0]] * 300)
    return path


@pytest.fixture
async def client(streets: Path) -> AsyncIterator[Client]:
    async with asked(Service(streets, root_path="/hush")) as client:
        yield client


async def names(client: Client, query: str) -> list[str]:
    shown = re.findall(r'<th scope="row"><bdi>([^<]*)</bdi>', await client.page(f"/tasks/many?{query}"))
    return [name for name in map(html.unescape, shown) if name in LABELS]


@pytest.mark.medium
async def test_a_search_and_a_page_show_their_categories(client: Client) -> None:
    document = (await client.document("/v1/tasks/many/rounds/latest"))["categories"]
    shares = {one["label"]: one["frequency"] for one in document}
    by_share = sorted(LABELS, key=lambda label: -shares[label])
    cases = {
        "order=task&find=street+59": ["Street 59", *(f"Street {number}" for number in range(590, 598))],
        "find=%C3%9CBERGANG": ["Übergang <Süd>"],
        "find=%EF%BC%95+%25": ["5 % & more"],  # a wide 5
        "find=%3CS": ["Übergang <Süd>"],
        "find=nowhere": [],
        "order=task": LABELS[:PARTS],
        f"order=task&start={PARTS + 1}": LABELS[PARTS : 2 * PARTS],
        "order=task&start=999999": LABELS[2 * PARTS :],
        f"order=task&find=street&start={2 * PARTS}": LABELS[2 * PARTS : 598],
        "": by_share[:PARTS],
        f"start={PARTS}": by_share[PARTS : 2 * PARTS],
    }
    for query, found in cases.items():
        assert await names(client, query) == found, query
    page = await client.page("/tasks/many?find=Street+597")
    (shown,) = re.findall(r'<data value="([^"]*)" data-figure="categories.597.frequency">', page)
    assert float(shown) == document[597]["frequency"]  # the same on every page


@pytest.mark.medium
async def test_forms_and_links_of_a_search_keep_round_and_order(client: Client) -> None:
    page = await client.page("/tasks/many?round=0&find=%22%3E%3Cscript%3E&start=0")
    (form,) = re.findall(r"<form.*?</form>", page)
    for part in ('action="/hush/tasks/many#find"', 'name="round" value="0"', 'value="&#34;&gt;&lt;script&gt;"'):
        assert part in form
    assert "<script>" not in page
    assert 'href="/hush/tasks/many?find=street&amp;order=task#order"' in await client.page("/tasks/many?find=street")
    kept = await client.page("/tasks/many?find=street&order=task")
    assert '<input type="hidden" name="order" value="task">' in kept
    assert "<form" not in await client.page("/tasks/few")


@pytest.mark.medium
async def test_an_invalid_page_or_search_is_refused(client: Client) -> None:
    for query in ("start=-1", "start=1000000", "start=x", f"find={'a' * 501}", "order=luck", "round=x"):
        assert (await client.get(f"/tasks/many?{query}")).status_code == 422
