"""The page in a real browser: by eye, by keyboard, without its script, and for somebody who creates a task."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import page_tasks
import pytest
from axe_playwright_python.sync_playwright import Axe
from http_process import HttpProcess, running
from http_world import count_bodies
from page_browser import browsing
from page_figures import Figure, agree
from page_server import served
from playwright.sync_api import Browser, Page, Request, expect
from servers import Mosquitto, need
from waiting import PATIENCE_S

from hush_aggregator import SqliteStore
from hush_common.task import decode_task, make_task

PATIENCE_MS = 1000 * PATIENCE_S
WIDTHS = (320, 390, 768, 1440)
TOKEN = "9f2c4e6a8b0d1f3a5c7e9b2d4f6a8c0e1b3d5f7a"  # noqa: S105 - of tests

pytestmark = [pytest.mark.large, pytest.mark.face]

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a task of each kind, one without noise, and one with 600 categories."""
    path = tmp_path_factory.mktemp("page") / "hush.sqlite3"
    page_tasks.fill(path, dict.fromkeys(page_tasks.COUNTS, 120))
    labels = [f"Street {number}" for number in range(600)]
    wrong = make_task({"id": "wrong", "epsilon": "0.5", "domain": {"kind": "bit"}})
    many = make_task({"id": "many", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    with SqliteStore(path) as counting:
        for task in (wrong, many):
            counting.add_task(task)
        count_bodies(counting, wrong, [1] * 4000)  # everybody says yes, without noise
        page_tasks.count(counting, many, labels)
    return path


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with served(store) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        for task in client.get("/v1/tasks").json()["tasks"]:  # no page waits for an estimate
            assert client.get(f"/v1/tasks/{task['task']}/rounds/all").status_code == 200
        yield address


@contextmanager
def visiting(browser: Browser, address: str, *, errors: str = "^$", **settings: object) -> Iterator[Page]:
    """A page that makes requests to its service alone, without errors but for those that are expected."""
    context = browser.new_context(**settings)  # type: ignore[arg-type]
    asked: list[str] = []
    trouble: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("dialog", lambda dialog: trouble.append(dialog.message))
    context.on("weberror", lambda error: trouble.append(str(error.error)))
    context.on("console", lambda message: trouble.append(message.text))
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        yield page
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(f"{address}/")] == []
    assert [text for text in trouble if not re.search(errors, text)] == []


def open_all(page: Page) -> None:
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")


def assert_accessible(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def assert_fits(page: Page, widths: Sequence[int] = WIDTHS) -> None:
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (page.url, width)


def figures(page: Page) -> list[Figure]:
    read = "all => all.map(one => [one.dataset.figure, one.getAttribute('value'), one.textContent])"
    return [Figure(*one) for one in page.locator("[data-figure]").evaluate_all(read)]


# Reading


def test_every_page_fits_every_screen(browser: Browser, address: str) -> None:
    with visiting(browser, address) as page:
        for place in ["/", "/tasks/many", *(f"/tasks/{task.id}" for task in page_tasks.TASKS)]:
            page.goto(f"{address}{place}")
            open_all(page)
            assert_fits(page)


@pytest.mark.parametrize(
    ("theme", "places"),
    [
        ("light", ["/", "/tasks/heights", "/tasks/way-to-work"]),
        ("dark", ["/", "/tasks/sleep", "/tasks/hostile", "/tasks/wrong"]),
    ],
)
def test_pages_are_accessible_in_both_themes(browser: Browser, address: str, theme: str, places: list[str]) -> None:
    phone = {"width": 390, "height": 800}
    with visiting(browser, address, color_scheme=theme, viewport=phone, bypass_csp=True) as page:
        for place in places:
            page.goto(f"{address}{place}")
            open_all(page)
            assert_accessible(page)


def test_a_page_follows_reports_and_keeps_focus_and_place(browser: Browser, store: Path, address: str) -> None:
    task = page_tasks.TASKS[0]
    latest = f"{address}/v1/tasks/{task.id}/rounds/latest"
    with visiting(browser, address, viewport={"width": 390, "height": 500}) as page:
        page.goto(f"{address}/tasks/{task.id}")
        expect(page.locator("#live")).to_have_class("on")
        expect(page.locator("#still")).to_be_hidden()
        page.locator("#experts summary").click()
        page.locator("#experts summary").focus()
        where = "document.activeElement.getBoundingClientRect().top"
        place, before = page.evaluate(where), httpx.get(latest, timeout=PATIENCE_S).json()
        wanted = before["n"]
        for more in (20, 30):
            with SqliteStore(store) as counting:
                page_tasks.count(counting, task, [170.0] * more)
            wanted += more
            expect(page.locator(".hero [data-figure='n']")).to_have_attribute("value", str(wanted))
        after = httpx.get(latest, timeout=PATIENCE_S).json()
        agree(figures(page), after, 1)
        assert after["mean"] != before["mean"]
        expect(page.locator("#experts")).to_have_attribute("open", "")
        expect(page.locator("#experts summary")).to_be_focused()
        assert page.evaluate(where) == pytest.approx(place, abs=2)  # although there is a drawing above it now
        page.goto(address)
        expect(page.locator(f"#task-{task.id} [data-figure='n']")).to_have_attribute("value", str(after["n"]))


def test_a_page_in_the_background_is_right_when_it_is_visible_again(browser: Browser, tmp_path: Path) -> None:
    task = page_tasks.TASKS[1]
    with SqliteStore(tmp_path / "store") as counting:
        counting.add_task(task)
        with served(tmp_path / "store") as address, visiting(browser, address) as page:
            page.goto(f"{address}/tasks/{task.id}")
            expect(page.locator("#live")).to_have_class("on")
            for hidden in (True, False):
                change = "to => Object.defineProperty(document, 'hidden', {value: to, configurable: true})"
                page.evaluate(change, hidden)
                page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
                page_tasks.count(counting, task, [True] * 40)
            expect(page.locator(".hero [data-figure='n']")).to_have_attribute("value", "80")
            counting.close_task(task.id)
            expect(page.locator(".badge.final")).to_be_visible()
            expect(page.locator("#live")).not_to_have_class("on")
            expect(page.locator("#live")).to_contain_text("80 reports")


def test_on_a_phone_a_warning_comes_before_the_number(browser: Browser, address: str) -> None:
    tops = "names => names.map(name => document.querySelector(name).getBoundingClientRect().top)"
    with visiting(browser, address, viewport={"width": 390, "height": 800}) as page:
        for task, above in (("heights", []), ("way-to-work", []), ("wrong", [".alarm"])):
            page.goto(f"{address}/tasks/{task}")
            order = page.evaluate(tops, [*above, ".hero .figure", ".hero .interval", ".label"])
            assert order == sorted(order)
            assert order[len(above)] < 800  # the number is on the first screen


@pytest.mark.parametrize("place", ["/", "/tasks/sleep"])
def test_the_keyboard_alone_reaches_everything(browser: Browser, address: str, place: str) -> None:
    visible = "all => all.filter(o => o.checkVisibility()).length"
    here = "[...document.querySelectorAll('a, summary, button, input')].indexOf(document.activeElement)"
    outlined = """(s => s.outlineStyle !== 'none' || document.activeElement.closest('.card:has(:focus-visible)'))
        (getComputedStyle(document.activeElement))"""
    with visiting(browser, address) as page:
        page.goto(f"{address}{place}")
        expect(page.locator("#still")).to_be_hidden()
        wanted = page.locator("a, summary, button, input").evaluate_all(visible)
        reached = set()
        for _ in range(wanted):
            page.keyboard.press("Tab")
            assert page.evaluate(f"!!{outlined}")
            reached.add(page.evaluate(here))
        assert len(reached - {-1}) == wanted
        page.goto(f"{address}{place}")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # past the head of the page
        expect(page.locator("#main")).to_be_focused()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_a_title_that_is_a_program_is_only_read(browser: Browser, address: str, *, script: bool) -> None:
    with visiting(browser, address, java_script_enabled=script) as page:
        for place in ("/", "/tasks/hostile"):
            page.goto(f"{address}{place}")
            assert page.locator("script").count() == 1
            assert page.locator("main img, main b, main [onclick], main [onerror]").count() == 0
            expect(page.locator("main").get_by_text("<script>alert(1)</script>").first).to_be_visible()


def test_a_search_is_made_while_somebody_types(browser: Browser, address: str) -> None:
    with visiting(browser, address) as page:
        page.goto(f"{address}/tasks/many")
        field = page.get_by_label("Search 600 categories")
        rows = page.locator(".parts tbody tr:not(.drawn)")
        field.press_sequentially("STREET 59")
        expect(rows).to_have_count(11)
        assert "find=STREET+59" in page.url
        expect(field).to_be_focused()
        field.press("Backspace")
        expect(rows).to_have_count(111)
        page.get_by_role("link", name="Show all").click()
        page.get_by_role("link", name="Next").click()
        expect(page.locator("#parts-turn")).to_contain_text("257 to 512 of 600")


def test_without_the_script_a_page_can_be_loaded_again(browser: Browser, address: str) -> None:
    with visiting(browser, address, java_script_enabled=False) as page:
        page.goto(f"{address}/tasks/heights?round=0")
        expect(page.locator("#still")).to_be_visible()
        expect(page.locator("#live")).to_be_empty()
        page.get_by_role("link", name="Reload").click()
        expect(page).to_have_url(f"{address}/tasks/heights?round=0")


def test_a_list_of_a_hundred_tasks_needs_no_script(browser: Browser, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as counting:
        for number in range(100):
            title = f"{'Mean height' if number % 3 else 'Ways'} {number}"
            task = make_task({"id": f"t{number:02}", "title": title, "epsilon": "4", "domain": {"kind": "bit"}})
            counting.add_task(task)
            if number % 10 == 8:
                counting.close_task(task.id)
    with served(tmp_path / "store") as address, visiting(browser, address, java_script_enabled=False) as page:
        page.goto(f"{address}/")
        rows = page.locator("table.list tbody tr")
        expect(rows).to_have_count(100)
        assert_fits(page)
        page.get_by_label("Search 100 tasks").press_sequentially("MEAN HEIGHT")
        page.get_by_label("Show").select_option("Ended")
        page.get_by_role("button", name="Search").click()
        expect(rows).to_have_count(7)
        page.get_by_role("link", name="Show all").click()
        expect(rows).to_have_count(100)


# Creating a task


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


def administrators(folder: Path) -> str:
    file = folder / "administrators"
    file.write_text(f"anna {TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    return str(file)


@contextmanager
def serving(broker: Mosquitto, folder: Path) -> Iterator[HttpProcess]:
    words = ["serve", "--broker", broker.url, "--store", str(folder / "store"), "--http-write"]
    words += ["--http-admin-token-file", administrators(folder), "--http-audit-log", str(folder / "audit")]
    with running(folder, words, option="--http") as service:
        service.until("/readyz", 200)
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(broker: Mosquitto, folder: Path) -> Iterator[HttpProcess]:
    with serving(broker, folder) as service:
        yield service


@contextmanager
def filling(browser: Browser, url: str, **settings: object) -> Iterator[tuple[Page, list[Request]]]:
    """The empty form, and the requests that the page makes. Only a refusal may be an error of the console."""
    made: list[Request] = []
    with visiting(browser, url, errors="401|409", **settings) as page:
        page.context.on("request", lambda request: made.append(request))  # noqa: PLW0108 - playwright marks handlers
        page.goto(f"{url}/new")
        yield page, made


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def write(page: Page, **typed: str) -> None:
    for name, text in typed.items():
        page.locator(f"#in-{name}").fill(text)


def fill_bit(page: Page, task_id: str) -> None:
    page.locator("#token").fill(TOKEN)
    page.get_by_label("Yes or no").check()
    write(page, id=task_id)
    press(page, "Preview")


def retained(broker: Mosquitto, task_id: str) -> bytes:
    """The task that a new subscriber gets at once."""
    command = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(broker.port), "-t", f"hush/v1/tasks/{task_id}"]
    return subprocess.run([*command, "-C", "1", "-W", "60", "-N"], capture_output=True, check=False).stdout


def test_a_task_is_published_as_its_label_was_shown(
    browser: Browser, service: HttpProcess, broker: Mosquitto, folder: Path
) -> None:
    with filling(browser, service.url) as (page, made):
        page.goto(service.url)
        page.get_by_role("link", name="New task").click()
        page.locator("#token").fill(TOKEN)
        write(page, title="Weight of adults", purpose="Lifts", id="weights", lower="30", upper="250", unit="kg")
        press(page, "Preview")
        expect(page.locator("#shown")).to_be_focused()
        expect(page.locator("section.label")).to_contain_text("73.2 %")
        assert service.get("/v1/tasks/weights").status_code == 404
        write(page, epsilon="0.5")
        expect(page.locator("#preview")).to_be_empty()  # that label was of another task
        expect(page.get_by_role("button", name="Publish")).to_have_count(0)
        press(page, "Preview")
        expect(page.locator("section.label")).to_contain_text("62.3 %")
        label = page.locator("section.label").inner_text()
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("Published.")
        task = decode_task(retained(broker, "weights"))
        assert (task.id, str(task.epsilon), task.title) == ("weights", "1/2", "Weight of adults")
        page.get_by_role("link", name="Open its page").click()
        expect(page.locator("h1")).to_have_text("Weight of adults")
        expect(page.locator("section.label")).to_have_text(label, use_inner_text=True)
        page.go_back()
        expect(page.locator("#token")).to_have_value("")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert TOKEN not in " ".join(one.url for one in made)
    assert [one.url for one in made if TOKEN in (one.post_data or "")] == []
    assert TOKEN not in service.log.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in (folder / "audit").read_text(encoding="utf-8").splitlines()]
    assert [(line["token"], line["action"], line["status"]) for line in lines] == [
        ("anna", "publish", "asked"),
        ("anna", "publish", "ok"),
    ]


def test_the_keyboard_alone_corrects_every_error_of_the_form(browser: Browser, service: HttpProcess) -> None:
    settings = {"color_scheme": "dark", "viewport": {"width": 320, "height": 700}, "bypass_csp": True}
    with filling(browser, service.url, **settings) as (page, _):
        page.locator("#token").focus()
        page.keyboard.type(TOKEN)
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.type("A b")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")  # from a number to yes or no
        expect(page.get_by_label("Yes or no")).to_be_checked()
        expect(page.locator("#in-lower")).to_be_hidden()
        page.keyboard.press("Tab")
        page.keyboard.press("Control+A")
        page.keyboard.type("x")
        page.locator("#in-retention").evaluate("one => one.value = '1y'")  # behind "More", which is closed
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_focused()
        expect(page.locator("[aria-invalid=true]")).to_have_count(3)
        expect(page.locator("#in-id")).to_have_accessible_description(re.compile("A b"))
        expect(page.locator("#wrong-retention")).to_be_visible()
        assert_fits(page)
        assert_accessible(page)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#in-id")).to_be_focused()
        page.keyboard.press("Control+A")
        page.keyboard.type("evenings")
        write(page, epsilon="1", retention="30d")
        page.keyboard.press("Enter")
        expect(page.locator("#shown")).to_be_focused()
        expect(page.locator("[aria-invalid]")).to_have_count(0)
        assert_accessible(page)


def test_a_wrong_token_stores_nothing_and_keeps_the_form(browser: Browser, service: HttpProcess) -> None:
    with filling(browser, service.url) as (page, _):
        write(page, id="evenings", title="Evenings")
        page.get_by_label("Yes or no").check()
        for given in ("", "ключ", "0" * 20 + "123456789abcdef01234"):
            page.locator("#token").fill(given)
            press(page, "Preview")
            expect(page.locator("#wrong-token")).not_to_be_empty()
            expect(page.get_by_role("status")).to_have_text(page.locator("#wrong-token").inner_text())
            expect(page.locator("#token")).to_be_focused()
        expect(page.locator("#in-title")).to_have_value("Evenings")
        page.locator("#token").fill(TOKEN)
        expect(page.locator("#wrong-token")).to_be_empty()
        press(page, "Preview")
        expect(page.get_by_role("button", name="Publish")).to_be_visible()
    assert service.get("/v1/tasks/evenings").status_code == 404


def test_a_task_that_another_store_has_is_not_called_published(
    browser: Browser, service: HttpProcess, broker: Mosquitto, tmp_path: Path
) -> None:
    body = {"id": "buses", "epsilon": "2", "domain": {"kind": "bit"}}
    assert service.post("/v1/tasks", body, TOKEN).status_code == 201
    assert json.loads(retained(broker, "buses"))["epsilon"] == "2"
    with serving(broker, tmp_path) as other, filling(browser, other.url) as (page, _):
        fill_bit(page, "buses")
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("not published")
        expect(page.locator("#said")).to_contain_text("another store")
    assert json.loads(retained(broker, "buses"))["epsilon"] == "2"


def test_a_service_alone_stores_a_task_below_the_path_of_a_proxy(browser: Browser, tmp_path: Path) -> None:
    """The proxy is the browser: it asks the service for what is below /hush without that."""
    with SqliteStore(tmp_path / "store"):
        pass
    words = ["http", "--store", str(tmp_path / "store"), "--write", "--admin-token-file", administrators(tmp_path)]
    with running(tmp_path, [*words, "--root-path", "/hush"]) as service:
        below = f"{service.url}/hush"
        with visiting(browser, below, errors="404|ERR_FAILED") as page:
            page.route(
                f"{below}/**",
                lambda route: route.fulfill(response=route.fetch(url=route.request.url.replace("/hush/", "/"))),
            )
            page.route(f"{below}/v1/events**", lambda route: route.abort())  # a fetch would wait for its end
            page.clock.install()
            page.goto(f"{below}/new")
            fill_bit(page, "below")
            press(page, "Publish")
            expect(page.locator("#said")).to_contain_text("stored")
            for _ in range(20):  # no aggregator publishes it
                with page.expect_response(lambda answer: answer.url.endswith("/v1/tasks/below")):
                    page.clock.run_for(1000)
            expect(page.locator("#said")).to_contain_text("not published")
            page.get_by_role("link", name="Open its page").click()
            expect(page.locator("h1")).to_have_text("below")
            page.unroute_all(behavior="wait")  # a request of the page may be on its way
