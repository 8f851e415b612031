"""One number and one ±; what a wanted precision needs; and who may show the page in a frame."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import page_tasks
import pytest
from http_world import asked

from hush_aggregator import SqliteStore
from hush_aggregator.http.listen import HttpListener, HttpOptions
from hush_aggregator.http.service import Service
from hush_aggregator.store.location import parse_store
from hush_common.errors import OptionError
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 0, "upper": 100, "unit": "cm"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        for name, domain, values in (
            ("height", NUMBER, [40.0, 60.0] * 2000),
            ("home", {"kind": "bit"}, [1, 0] * 2000),
            ("few", NUMBER, [40.0] * 2),
        ):
            task = make_task({"id": name, "epsilon": "2", "mechanism": "auto", "domain": domain})
            store.add_task(task)
            page_tasks.count(store, task, values)
    async with asked(Service(tmp_path / "hush.sqlite")) as client:
        yield client


async def page(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def half_of(text: str) -> float:
    (found,) = re.findall(r'<p class="plus-minus">±&nbsp;([\d.]+)', text)
    return float(found)


def needed(text: str) -> int:
    (found,) = re.findall(r"needs about ([\d\s]+) reports in all", text)
    return int("".join(found.split()))


@pytest.mark.parametrize("name", ["height", "home"])
async def test_the_headline_has_one_plus_minus_that_reaches_the_ends_of_its_interval(
    client: httpx.AsyncClient, name: str
) -> None:
    text = await page(client, f"/tasks/{name}")
    mean, low, high = (
        float(one) for one in re.findall(r'<data value="([^"]+)" data-figure="(?:mean|intervals[^"]*)"', text)[:3]
    )
    factor = 100 if name == "home" else 1
    assert half_of(text) == pytest.approx(max(mean - low, high - mean) * factor, rel=0.05)
    assert text.index("plus-minus") < text.index('id="sure-more"')


@pytest.mark.parametrize(("name", "unit"), [("height", "cm"), ("home", "points")])
async def test_a_wanted_precision_needs_reports_as_the_square(client: httpx.AsyncClient, name: str, unit: str) -> None:
    half = half_of(await page(client, f"/tasks/{name}"))
    for share in (2, 4, 10):
        text = await page(client, f"/tasks/{name}?goal={half / share}")
        assert needed(text) == pytest.approx(4000 * share**2, rel=0.08)
        assert unit in text
    assert "These reports are enough." in await page(client, f"/tasks/{name}?goal={half * 1.1}")
    assert "More reports than there are people." in await page(client, f"/tasks/{name}?goal=0.00001")
    default = float(re.findall(r'name="goal" value="([^"]+)"', await page(client, f"/tasks/{name}"))[0])
    assert half / 5 < default <= half / 2


async def test_an_interval_that_rules_nothing_out_has_no_plus_minus_and_no_goal(client: httpx.AsyncClient) -> None:
    text = await page(client, "/tasks/few")
    assert "plus-minus" not in text
    assert 'id="goal"' not in text


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "x", "1e99"])
async def test_a_goal_that_is_none_is_refused(client: httpx.AsyncClient, wrong: str) -> None:
    assert (await client.get(f"/tasks/height?goal={wrong}")).status_code == 422


def policy(answer: httpx.Response) -> str:
    return answer.headers["content-security-policy"].rpartition("frame-ancestors ")[2]


async def test_nobody_may_show_it_in_a_frame_but_named_origins(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "hush.sqlite").close()
    async with asked(Service(tmp_path / "hush.sqlite")) as alone:
        for answer in (await alone.get("/"), await alone.head("/"), await alone.get("/nowhere")):
            assert (policy(answer), answer.headers["x-frame-options"]) == ("'none'", "DENY")
    origins = ("https://example.org", "http://intranet:8080")
    async with asked(Service(tmp_path / "hush.sqlite", frame_ancestors=origins)) as named:
        for answer in (await named.get("/"), await named.head("/"), await named.get("/nowhere")):
            assert policy(answer) == " ".join(origins)
            assert "x-frame-options" not in answer.headers


@pytest.fixture
def listened() -> Iterator[list[HttpListener]]:
    opened: list[HttpListener] = []
    yield opened
    for one in opened:
        one.listener.close()


def test_an_origin_is_a_scheme_and_a_host(tmp_path: Path, listened: list[HttpListener]) -> None:
    store = parse_store(str(tmp_path / "hush.sqlite"))
    for wrong in ("*", "'self'", "example.org", "https://a/b", "https://a;script-src *", "ftp://a", "https://a\nb", ""):
        options = HttpOptions("--http", "127.0.0.1:0", "--http-", frame_ancestors=(wrong,))
        with pytest.raises(
            OptionError, match=r"--http-frame-ancestors: .* is no origin of pages; write scheme and host"
        ):
            HttpListener.open(options, store)
    options = HttpOptions("--http", "127.0.0.1:0", "--http-", frame_ancestors=("https://Example.org:8443",))
    listened.append(HttpListener.open(options, store))
    assert listened[0].service.frame_ancestors == ("https://example.org:8443",)
