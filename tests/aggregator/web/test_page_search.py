"""Many categories: a page of them at a time, and a search that a browser without JavaScript can use."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import page_tasks
import pytest
from http_world import asked

from hush_aggregator import SqliteStore
from hush_aggregator.http.page.figures import PARTS_LISTED
from hush_aggregator.http.service import Service
from hush_common.task import make_task

LABELS = [f"Street {number}" for number in range(598)] + ["Übergang <Süd>", "5 % & more"]
ROW = re.compile(r'<th scope="row"><bdi>([^<]*)</bdi>')


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        for name, labels in (("many", LABELS), ("few", LABELS[:2])):
            task = make_task({"id": name, "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
            store.add_task(task)
            page_tasks.count(store, task, [LABELS[0]] * 300)
    async with asked(Service(tmp_path / "hush.sqlite", root_path="/hush")) as client:
        yield client


async def names(client: httpx.AsyncClient, query: str) -> list[str]:
    answer = await client.get(f"/tasks/many?{query}")
    assert answer.status_code == 200
    return [html.unescape(name) for name in ROW.findall(answer.text) if html.unescape(name) in LABELS]


@pytest.mark.large
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("find=street+59", ["Street 59", *(f"Street {number}" for number in range(590, 598))]),
        ("find=%C3%9CBERGANG", ["Übergang <Süd>"]),
        ("find=%EF%BC%95+%25", ["5 % & more"]),  # a wide 5
        ("find=%3CS", ["Übergang <Süd>"]),
        ("find=nowhere", []),
        ("find=", LABELS[:PARTS_LISTED]),
        (f"start={PARTS_LISTED}", LABELS[PARTS_LISTED : 2 * PARTS_LISTED]),
        (f"start={PARTS_LISTED + 1}", LABELS[PARTS_LISTED : 2 * PARTS_LISTED]),
        ("start=999999", LABELS[2 * PARTS_LISTED :]),
        (f"find=street&start={2 * PARTS_LISTED}", LABELS[2 * PARTS_LISTED : 598]),
    ],
)
async def test_a_search_and_a_page_show_their_categories(
    client: httpx.AsyncClient, query: str, found: list[str]
) -> None:
    assert await names(client, f"order=task&{query}") == found


async def test_the_largest_share_comes_first_unless_another_order_is_asked_for(client: httpx.AsyncClient) -> None:
    document = (await client.get("/v1/tasks/many/rounds/latest")).json()
    shares = {one["label"]: one["frequency"] for one in document["categories"]}
    wanted = sorted(LABELS, key=lambda label: -shares[label])
    assert wanted[0] == LABELS[0]
    for start in (0, PARTS_LISTED):
        assert await names(client, f"start={start}") == wanted[start : start + PARTS_LISTED]
    by_share, in_order = [(await client.get(f"/tasks/many?find=street{more}")).text for more in ("", "&order=task")]
    assert 'href="/hush/tasks/many?find=street&amp;order=task#order"' in by_share
    assert 'href="/hush/tasks/many?find=street#order"' in in_order
    assert '<input type="hidden" name="order" value="task">' in in_order  # the next search keeps it
    assert (await client.get("/tasks/many?order=luck")).status_code == 422


async def test_a_row_has_the_same_figures_on_every_page(client: httpx.AsyncClient) -> None:
    document = (await client.get("/v1/tasks/many/rounds/latest")).json()["categories"]
    page = (await client.get("/tasks/many?find=Street+597")).text
    (shown,) = re.findall(r'<data value="([^"]*)" data-figure="categories.597.frequency">', page)
    assert float(shown) == document[597]["frequency"]


async def test_the_form_stays_on_the_page_of_the_task_and_round(client: httpx.AsyncClient) -> None:
    page = (await client.get("/tasks/many?round=0&find=%22%3E%3Cscript%3E&start=0")).text
    (form,) = re.findall(r"<form.*?</form>", page, re.DOTALL)
    assert 'method="get" action="/hush/tasks/many#find"' in form
    assert 'name="round" value="0"' in form
    assert 'value="&#34;&gt;&lt;script&gt;"' in form
    assert "0 categories with" in form
    assert "<script>" not in page
    assert "form-action 'self'" in (await client.get("/tasks/many")).headers["content-security-policy"]


async def test_few_categories_need_no_search(client: httpx.AsyncClient) -> None:
    page = (await client.get("/tasks/few")).text
    assert "<form" not in page
    assert 'id="parts-turn"' not in page


@pytest.mark.parametrize("query", ["start=-1", "start=1000000", "start=x", f"find={'a' * 501}"])
async def test_what_is_no_page_of_the_table_is_refused(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/tasks/many?{query}")).status_code == 422
