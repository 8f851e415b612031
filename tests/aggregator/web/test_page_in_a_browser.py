"""The page in a real browser: with and without its script, by eye, by keyboard, and for whoever is read to."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import page_states
import page_tasks
import pytest
from axe_playwright_python.sync_playwright import Axe
from page_browser import browsing
from page_figures import Figure, agree, required
from page_server import served
from playwright.sync_api import Browser, Page, expect

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted
from hush_common.task import make_task

PAGES = ["/", *(f"/tasks/{task.id}" for task in page_tasks.TASKS)]
FIGURES = "all => all.map(one => [one.dataset.figure, one.getAttribute('value'), one.textContent])"
IN_TIME_MS = 60_000

pytestmark = pytest.mark.large

expect.set_options(timeout=IN_TIME_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "hush.sqlite3"
    page_tasks.fill(path, dict.fromkeys(page_tasks.COUNTS, 120))
    return path


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with served(store) as address:
        yield address


@contextmanager
def looking(browser: Browser, address: str, **settings: object) -> Iterator[Page]:
    """A page whose requests all stay where they belong, and which has nothing to complain of."""
    context = browser.new_context(**settings)  # type: ignore[arg-type]
    asked: list[str] = []
    trouble: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("dialog", lambda dialog: trouble.append(dialog.message))
    context.on("weberror", lambda error: trouble.append(str(error.error)))
    context.on("console", lambda message: trouble.append(message.text))
    page = context.new_page()
    page.set_default_timeout(IN_TIME_MS)
    try:
        yield page
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(f"{address}/")] == []
    assert trouble == []


def figures(page: Page) -> list[Figure]:
    return [Figure(*one) for one in page.locator("[data-figure]").evaluate_all(FIGURES)]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with tasks of each kind in each state."""
    path = tmp_path_factory.mktemp("states") / "hush.sqlite3"
    page_states.fill(path)
    with pytest.MonkeyPatch.context() as patch:
        page_states.fail_the_failed(patch)
        with served(path) as address:
            yield address


SOME = ["number-live", "bit-failed", "category-final", "vector-none", "vector-live", "rounds-live"]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize(
    "tasks", [SOME, pytest.param(list(page_states.ALL), marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_its_figures_are_those_of_the_api_of_each_kind_in_each_state(
    browser: Browser, states: str, tasks: list[str], *, script: bool
) -> None:
    with httpx.Client(base_url=states, timeout=60) as api, looking(browser, states, java_script_enabled=script) as page:
        for task_id in tasks:
            page.goto(f"{states}/tasks/{task_id}")
            latest, every = (api.get(f"/v1/tasks/{task_id}/rounds/{which}").json() for which in ("latest", "all"))
            scale = 100 if task_id.startswith(("bit", "category")) else 1
            agree(figures(page), {**latest, "rounds": every["results"]}, scale)
            assert {figure.place for figure in figures(page)} >= set(required(latest))


def test_it_follows_the_reports_and_leaves_focus_place_and_what_is_folded_out(
    browser: Browser, store: Path, address: str
) -> None:
    task = page_tasks.TASKS[0]
    with looking(browser, address, viewport={"width": 390, "height": 500}) as page:
        page.goto(f"{address}/tasks/{task.id}")
        expect(page.locator("#live")).to_contain_text("Live")
        expect(page.locator("#still")).to_be_hidden()
        page.locator("#experts summary").click()
        page.locator("#experts summary").focus()
        where = "document.activeElement.getBoundingClientRect().top"
        place = page.evaluate(where)
        before = httpx.get(f"{address}/v1/tasks/{task.id}/rounds/latest", timeout=60).json()
        wanted = before["n"]
        for more in (20, 30, 40):
            with SqliteStore(store) as counting:
                page_tasks.count(counting, task, [170.0] * more)
            wanted += more
            expect(page.locator(".hero [data-figure='n']")).to_have_attribute("value", str(wanted))
        after = httpx.get(f"{address}/v1/tasks/{task.id}/rounds/latest", timeout=60).json()
        agree(figures(page), after, 1)
        assert after["mean"] != before["mean"]
        expect(page.locator("#experts")).to_have_attribute("open", "")
        expect(page.locator("#experts summary")).to_be_focused()
        assert page.evaluate("scrollY") > 0
        assert page.evaluate(where) == pytest.approx(place, abs=2)  # although a drawing has come to stand above it
        expect(page.locator(".course svg.chart")).to_have_count(1)
        page.goto(address)
        expect(page.locator(f"#task-{task.id} [data-figure='n']")).to_have_attribute("value", str(after["n"]))


LABELS = """() => [...document.querySelectorAll(".times text[y='1em']")].map(one => one.getBoundingClientRect())
    .map(one => [one.left, one.right])"""
LINES = """() => [...document.querySelectorAll(".course .grid")].map(one => one.getBoundingClientRect())
    .filter(one => one.height > one.width).map(one => one.left)"""


@pytest.mark.parametrize("task", ["heights", "remote-work", "way-to-work", "closed"])
def test_each_label_of_the_time_axis_is_below_its_line_and_ends_before_the_next(
    browser: Browser, address: str, task: str
) -> None:
    with looking(browser, address) as page:
        page.goto(f"{address}/tasks/{task}")
        for width in (320, 768, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            labels, lines = page.evaluate(LABELS), page.evaluate(LINES)
            assert len(labels) == len(lines) > 1
            for (left, right), line, after in zip(
                labels, lines, [*(left for left, _ in labels[1:]), width], strict=True
            ):
                assert (left + right) / 2 == pytest.approx(line, abs=2)
                assert right < after
        page.locator("#course-table summary").click()
        rows = page.locator("#course-table tbody tr")
        expect(rows.first).to_be_visible()
        assert rows.count() > 1


def test_a_page_that_nobody_looks_at_holds_no_stream_and_is_right_when_somebody_looks_again(
    browser: Browser, tmp_path: Path
) -> None:
    path, task = tmp_path / "hush.sqlite3", page_tasks.TASKS[1]
    with SqliteStore(path) as counting:
        counting.add_task(task)
    with served(path) as address, looking(browser, address) as page:
        page.goto(f"{address}/tasks/{task.id}")
        expect(page.locator("#live")).to_have_class("on")
        for hidden in (True, False):
            page.evaluate("to => Object.defineProperty(document, 'hidden', {value: to, configurable: true})", hidden)
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            with SqliteStore(path) as counting:
                page_tasks.count(counting, task, [True] * 40)
        expect(page.locator(".hero [data-figure='n']")).to_have_attribute("value", "80")


def test_a_task_that_is_closed_while_somebody_looks_says_so(browser: Browser, tmp_path: Path) -> None:
    path, task = tmp_path / "hush.sqlite3", page_tasks.TASKS[0]
    with SqliteStore(path) as counting:
        counting.add_task(task)
    with served(path) as address, looking(browser, address) as page:
        page.goto(f"{address}/tasks/{task.id}")
        expect(page.get_by_text("No reports yet")).to_be_visible()
        with SqliteStore(path) as counting:
            page_tasks.count(counting, task, [170.0] * 20)
            counting.close_task(task.id)
        expect(page.locator(".badge.final")).to_be_visible()
        expect(page.get_by_text("No reports yet")).to_have_count(0)
        expect(page.locator("#live")).to_have_text("Final: 20 reports")
        expect(page.locator("#live")).not_to_have_class("on")


def test_one_report_is_one_and_what_is_closed_is_not_live(browser: Browser, tmp_path: Path) -> None:
    path, (open_, closed) = tmp_path / "hush.sqlite3", page_tasks.TASKS[:2]
    with SqliteStore(path) as counting:
        for task, values in ((open_, [170.0]), (closed, [True, False])):
            counting.add_task(task)
            page_tasks.count(counting, task, values)
        counting.close_task(closed.id)
    with served(path) as address, looking(browser, address) as page:
        page.goto(f"{address}/tasks/{open_.id}")
        expect(page.locator("#live")).to_have_text("Live: 1 report")
        expect(page.locator("#live")).to_have_class("on")
        page.goto(f"{address}/tasks/{closed.id}")
        expect(page.locator("#live")).to_have_text("Final: 2 reports")
        expect(page.locator("#live")).not_to_have_class("on")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_wrong_reports_are_the_first_thing_to_be_read(browser: Browser, tmp_path: Path, theme: str) -> None:
    """Everybody answers yes, without noise: on a phone the warning is above the figure, and on the first screen."""
    path, task = tmp_path / "hush.sqlite3", page_tasks.TASKS[1]
    ids = np.frombuffer(secrets.token_bytes(16 * 4000), dtype="V16")
    with SqliteStore(path) as counting:
        counting.add_task(task)
        counting.commit([Accepted(task, 0, ids, np.ones((4000, 1), dtype=np.int64))], {})
    with (
        served(path) as address,
        looking(browser, address, color_scheme=theme, viewport={"width": 390, "height": 800}, bypass_csp=True) as page,
    ):
        for where in (f"/tasks/{task.id}", "/"):
            page.goto(f"{address}{where}")
            expect(page.locator("#still")).to_be_hidden()
            alarm = page.locator(".alarm")
            expect(alarm).to_contain_text("Do not rely on this. Too little noise.", use_inner_text=False)
            warned, figure = alarm.bounding_box(), page.locator(".estimate").bounding_box()
            assert warned is not None
            assert figure is not None
            assert warned["y"] + warned["height"] <= figure["y"] <= 800
            assert Axe().run(page).violations_count == 0
            with looking(browser, address, java_script_enabled=False) as still:
                still.goto(f"{address}{where}")
                words = [" ".join(one.locator("main").inner_text().split()) for one in (still, page)]
                assert words[0] == words[1].replace("Share Download", "Download")  # sharing needs the script


def test_without_the_script_it_says_how_old_it_is_and_how_to_load_it_again(browser: Browser, address: str) -> None:
    with looking(browser, address, java_script_enabled=False) as page:
        page.goto(f"{address}/tasks/heights?round=0")
        expect(page.locator("#still")).to_contain_text("As of")
        expect(page.locator("#live")).to_be_empty()
        page.get_by_role("link", name="Reload").click()
        expect(page).to_have_url(f"{address}/tasks/heights?round=0")


@pytest.mark.parametrize(
    ("theme", "places"),
    [
        ("light", ["/", "/tasks/heights", "/tasks/way-to-work"]),
        ("dark", ["/", "/tasks/sleep", "/tasks/hostile"]),
        pytest.param("light", PAGES, marks=pytest.mark.soak),
        pytest.param("dark", PAGES, marks=pytest.mark.soak),
    ],
)
def test_nobody_is_shut_out_in_either_theme(browser: Browser, address: str, theme: str, places: list[str]) -> None:
    axe = Axe()
    with looking(browser, address, color_scheme=theme, viewport={"width": 390, "height": 800}, bypass_csp=True) as page:
        for where in places:
            page.goto(f"{address}{where}")
            page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
            found = axe.run(page)
            assert found.violations_count == 0, f"{where}: {found.generate_report()}"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a hundred tasks, some with long names, some closed, and half of them with reports."""
    path = tmp_path_factory.mktemp("crowded") / "hush.sqlite3"
    models = [one for one in page_tasks.TASKS if one.rounds == 1 and one.id in page_tasks.COUNTS]
    with SqliteStore(path) as counting:
        for number in range(100):
            model = models[number % len(models)]
            document = json.loads(model.payload)
            fields = {"id": f"study-{number:02}", "epsilon": "4", "title": f"{document['title']} {number}"}
            task = make_task(fields | {"domain": document["domain"]})
            counting.add_task(task)
            if number % 2:
                page_tasks.count(counting, task, page_tasks.values_of(model, 30))
            if number % 9 == 8:
                counting.close_task(task.id)
    with served(path) as address:
        yield address


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_a_hundred_tasks_are_a_list_to_search(browser: Browser, crowded: str, *, script: bool) -> None:
    with looking(browser, crowded, java_script_enabled=script) as page:
        page.goto(f"{crowded}/")
        rows = page.locator("table.list tbody tr")
        expect(rows).to_have_count(100)
        field = page.get_by_label("Search 100 tasks")
        field.press_sequentially("MEAN HEIGHT")
        page.get_by_label("Show").select_option("Ended")
        page.get_by_label("Order").select_option("Most reports first")
        if not script:
            page.get_by_role("button", name="Search").click()
        expect(page.locator("#found")).to_contain_text(re.compile(r"^[1-9] tasks?\. Show all"))
        assert all(state == "Final" for state in rows.locator(".badge").all_inner_texts())
        counts = [
            int(one) for one in rows.locator("data[data-figure=n]").evaluate_all("all => all.map(one => one.value)")
        ]
        assert counts == sorted(counts, reverse=True)
        expect(page.get_by_label("Order")).to_have_value("reports")
        page.get_by_role("link", name="Show all").click()
        expect(rows).to_have_count(100)
        page.goto(f"{crowded}/?find=nowhere")
        expect(page.locator("#found")).to_have_text("0 tasks. Show all")
        expect(rows).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_fits_every_screen_and_shuts_nobody_out(browser: Browser, crowded: str, theme: str) -> None:
    with looking(browser, crowded, color_scheme=theme, bypass_csp=True) as page:
        page.goto(f"{crowded}/?order=name")
        for width in (320, 390, 768, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if width in (390, 1440):  # rows, and a table
                found = Axe().run(page)
                assert found.violations_count == 0, found.generate_report()


def test_the_address_of_a_page_is_copied_and_its_figures_are_a_file(browser: Browser, address: str) -> None:
    with looking(browser, address, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{address}/tasks/way-to-work?order=task#order")
        page.get_by_role("button", name="Share").click()
        expect(page.locator("#live")).to_have_text("The link is copied.")
        assert page.evaluate("navigator.clipboard.readText()") == f"{address}/tasks/way-to-work?order=task"
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download as CSV").click()
        text = saved.value.path().read_text(encoding="utf-8")
        assert saved.value.suggested_filename == "way-to-work.csv"
        assert text.startswith("task,round,part,reports,estimate,")
        assert text.count("\n") > len(page_tasks.TASKS)


@pytest.mark.parametrize("where", ["heights", "remote-work", "way-to-work"])
def test_on_a_phone_the_number_comes_first_then_how_sure_it_is_then_the_label(
    browser: Browser, address: str, where: str
) -> None:
    with looking(browser, address, viewport={"width": 390, "height": 800}) as page:
        page.goto(f"{address}/tasks/{where}")
        order = (".hero .figure", ".hero .interval", ".label")
        tops = "names => names.map(name => document.querySelector(name).getBoundingClientRect().top)"
        number, interval, label = page.evaluate(tops, list(order))
        assert number <= interval < label
        assert number < 800
        assert page.evaluate("[...document.querySelectorAll('.interval')].every(one => one.closest('.hero, .rest'))")
        if page.locator("#sure-more").count():
            assert page.locator("#sure-more summary").bounding_box()["y"] < label  # type: ignore[index]


def test_the_cards_of_a_row_are_equally_high_and_their_last_lines_aligned(browser: Browser, address: str) -> None:
    places = "all => all.map(one => one.getBoundingClientRect()).map(box => [box.top, box.bottom])"
    with looking(browser, address) as page:
        for width in (320, 800, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(address)
            cards, lines = (page.locator(which).evaluate_all(places) for which in (".card", ".promise"))
            rows: dict[float, set[tuple[float, float]]] = {}
            for (top, bottom), (begin, _) in zip(cards, lines, strict=True):
                rows.setdefault(round(top), set()).add((round(bottom), round(begin)))
            assert {len(row) for row in rows.values()} == {1}, width


def test_nothing_is_wider_than_the_screen(browser: Browser, address: str) -> None:
    with looking(browser, address) as page:
        for where in PAGES:
            page.goto(f"{address}{where}")
            page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
            for width in (320, 390, 768, 1440):
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, where


@pytest.mark.parametrize("where", ["/", "/tasks/sleep"])
def test_the_keyboard_alone_reaches_everything(browser: Browser, address: str, where: str) -> None:
    with looking(browser, address) as page:
        page.goto(f"{address}{where}")
        expect(page.locator("#still")).to_be_hidden()
        wanted = page.locator("a, summary, button, input").evaluate_all(
            "all => all.filter(o => o.checkVisibility()).length"
        )
        reached = set()
        for _ in range(wanted):
            page.keyboard.press("Tab")
            here = "[...document.querySelectorAll('a, summary, button, input')].indexOf(document.activeElement)"
            outline = "(s => s.outlineStyle !== 'none' || document.activeElement.closest('.card:has(:focus-visible)'))"
            assert page.evaluate(f"!!{outline}(getComputedStyle(document.activeElement))"), (
                "the focus is not to be seen"
            )
            reached.add(page.evaluate(here))
        assert len(reached - {-1}) == wanted
        page.goto(f"{address}{where}")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # past what stands above
        expect(page.locator("#main")).to_be_focused()
        if page.locator("#experts").count():
            page.locator("#experts summary").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#experts dl")).to_be_visible()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_a_title_that_is_a_program_is_only_read(browser: Browser, address: str, *, script: bool) -> None:
    with looking(browser, address, java_script_enabled=script) as page:
        for where in ("/", "/tasks/hostile"):
            page.goto(f"{address}{where}")
            assert page.locator("script").count() == 1
            assert page.locator("main img, main b, main [onclick], main [onerror]").count() == 0
            expect(page.locator("main").get_by_text("<script>alert(1)</script>").first).to_be_visible()
    # `looking` has seen no dialog, no error of a script, and no complaint of the policy


def test_page_and_all_it_loads_are_less_than_a_hundred_kilobytes(browser: Browser, address: str) -> None:
    for where in ("/", "/tasks/heights", "/tasks/sleep"):
        sizes: list[int] = []
        with looking(browser, address) as page:
            page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))  # noqa: B023
            page.goto(f"{address}{where}")
            expect(page.locator("#still")).to_be_hidden()
        assert len([size for size in sizes if size]) >= 4
        assert sum(sizes) < 100_000


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a task of 600 categories."""
    labels = [f"Street {number}" for number in range(600)]
    task = make_task({"id": "many", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    path = tmp_path_factory.mktemp("streets") / "hush.sqlite3"
    with SqliteStore(path) as counting:
        counting.add_task(task)
        page_tasks.count(counting, task, labels)
    with served(path) as address:
        yield address


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_a_search_among_many_categories_needs_no_script_and_is_quicker_with_it(
    browser: Browser, streets: str, *, script: bool
) -> None:
    with looking(browser, streets, java_script_enabled=script) as page:
        page.goto(f"{streets}/tasks/many")
        field = page.get_by_label("Search 600 categories")
        field.press_sequentially("STREET 59")
        if not script:
            page.get_by_role("button", name="Search").click()
        expect(page.locator("#found")).to_contain_text("11 categories with STREET 59")
        expect(page.locator(".parts tbody tr:not(.drawn)")).to_have_count(11)
        assert "find=STREET+59" in page.url
        if script:
            expect(field).to_be_focused()
            field.press("Backspace")
            expect(page.locator("#found")).to_contain_text("111 categories with STREET 5")
        page.get_by_role("link", name="Show all").click()
        page.get_by_role("link", name="Next").click()
        expect(page.locator("#parts-turn")).to_contain_text("257 to 512 of 600")
