"""A task is created in a real browser: the label comes first, and afterwards the broker has the task."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from http_process import HttpProcess, running
from page_browser import browsing
from playwright.sync_api import Browser, Page, Request, expect
from servers import Mosquitto, need

from hush_aggregator import SqliteStore
from hush_common.task import decode_task

TOKEN = "9f2c4e6a8b0d1f3a5c7e9b2d4f6a8c0e1b3d5f7a"  # noqa: S105 - of tests
WRONG = "0" * 20 + "123456789abcdef01234"
IN_TIME_MS = 60_000

pytestmark = pytest.mark.large

expect.set_options(timeout=IN_TIME_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("service")
    file = path / "administrators"
    file.write_text(f"anna {TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def service(broker: Mosquitto, folder: Path) -> Iterator[HttpProcess]:
    words = ["serve", "--broker", broker.url, "--store", str(folder / "store"), "--http-write"]
    words += ["--http-admin-token-file", str(folder / "administrators"), "--http-audit-log", str(folder / "audit")]
    with running(folder, words, option="--http") as service:
        service.until("/readyz", 200)
        yield service


@contextmanager
def filling(browser: Browser, url: str, **settings: object) -> Iterator[tuple[Page, list[Request]]]:
    """The empty form, and the requests that the page makes. Only a refusal may be an error of the console."""
    context = browser.new_context(**settings)  # type: ignore[arg-type]
    made: list[Request] = []
    trouble: list[str] = []
    context.on("request", lambda request: made.append(request))  # noqa: PLW0108 - playwright marks its handlers
    context.on("weberror", lambda error: trouble.append(str(error.error)))
    context.on("console", lambda message: trouble.append(message.text))
    page = context.new_page()
    page.set_default_timeout(IN_TIME_MS)
    page.goto(f"{url}/new")
    try:
        yield page, made
    finally:
        context.close()
    assert [one.url for one in made if not one.url.startswith(f"{url}/")] == []
    assert [text for text in trouble if not re.search("401|409", text)] == []


def retained(broker: Mosquitto, task_id: str) -> bytes:
    """The task that a new subscriber gets at once."""
    command = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(broker.port), "-t", f"hush/v1/tasks/{task_id}"]
    run = subprocess.run([*command, "-C", "1", "-W", "60", "-N"], capture_output=True, check=False)
    return run.stdout


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def write(page: Page, **typed: str) -> None:
    for name, text in typed.items():
        page.locator(f"#in-{name}").fill(text)


def test_somebody_with_the_token_sees_the_label_then_publishes_and_the_broker_has_the_task(
    browser: Browser, service: HttpProcess, broker: Mosquitto, folder: Path
) -> None:
    with filling(browser, service.url) as (page, made):
        page.goto(service.url)
        page.get_by_role("link", name="New task").click()
        page.get_by_label("Token of an administrator").fill(TOKEN)
        write(page, title="Weight of adults", purpose="Lifts", id="weights", lower="30", upper="250", unit="kg")
        press(page, "Preview")
        expect(page.locator("#shown")).to_be_focused()
        label = page.locator("section.label").inner_text()
        assert "at most 73.2 % sure" in label
        assert service.get("/v1/tasks/weights").status_code == 404
        write(page, epsilon="0.5")
        expect(page.locator("#preview")).to_be_empty()  # that label was of another task
        expect(page.get_by_role("button", name="Publish")).to_have_count(0)
        press(page, "Preview")
        expect(page.locator("section.label")).to_contain_text("at most 62.3 % sure")
        label = page.locator("section.label").inner_text()
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("Published. Devices can answer.")
        task = decode_task(retained(broker, "weights"))
        assert (task.id, str(task.epsilon), task.title) == ("weights", "1/2", "Weight of adults")
        page.get_by_role("link", name="Open its page").click()
        expect(page.locator("h1")).to_have_text("Weight of adults")
        expect(page.locator("section.label")).to_have_text(label, use_inner_text=True)
        page.go_back()
        expect(page.locator("#token")).to_have_value("")
        storage = "[localStorage.length, sessionStorage.length, document.cookie]"
        assert page.evaluate(storage) == [0, 0, ""]
    assert TOKEN not in " ".join(one.url for one in made)
    assert [one.url for one in made if TOKEN in (one.post_data or "")] == []
    assert sum(one.headers.get("authorization") == f"Bearer {TOKEN}" for one in made) >= 3
    assert TOKEN not in service.log.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in (folder / "audit").read_text(encoding="utf-8").splitlines()]
    assert [(line["token"], line["action"], line["status"]) for line in lines] == [
        ("anna", "publish", "asked"),
        ("anna", "publish", "ok"),
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_keyboard_alone_corrects_every_error_and_nobody_is_shut_out(
    browser: Browser, service: HttpProcess, theme: str
) -> None:
    with filling(browser, service.url, color_scheme=theme, viewport={"width": 320, "height": 700}, bypass_csp=True) as (
        page,
        _,
    ):
        page.get_by_label("Token of an administrator").focus()
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
        wrong = page.get_by_role("alert")
        expect(wrong).to_be_focused()
        expect(wrong).to_contain_text("3 things to correct")
        expect(page.locator("#in-id")).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#in-id")).to_have_accessible_description(
            "Its name for programs: a-z, 0-9 and -. It cannot be used again. "
            "'A b' is not a task id; use a-z, 0-9 and -, at most 64, not starting with -"
        )
        expect(page.locator("#wrong-retention")).to_be_visible()
        _look(page)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#in-id")).to_be_focused()
        page.keyboard.press("Control+A")
        page.keyboard.type("evenings")
        page.locator("#in-epsilon").fill("1")
        page.locator("#in-retention").fill("30d")
        page.keyboard.press("Enter")
        expect(page.locator("#shown")).to_be_focused()
        expect(page.locator("#wrong")).to_be_hidden()
        expect(page.locator("[aria-invalid]")).to_have_count(0)
        _look(page)


LEFT_ENDS = """() => [...document.querySelectorAll("#draft > *")].filter(one => one.checkVisibility())
    .map(one => one.getBoundingClientRect().left)"""


def _look(page: Page) -> None:
    for width in (320, 390, 768, 1440):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert len(set(page.evaluate(LEFT_ENDS))) == 1  # one field below the other
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 320, "height": 700})


def test_a_wrong_token_is_one_clear_line_and_the_form_stays_as_it_is(browser: Browser, service: HttpProcess) -> None:
    with filling(browser, service.url) as (page, _):
        write(page, id="evenings", title="Evenings")
        page.get_by_label("Yes or no").check()
        for given, words in (
            ("", "Paste a token first."),
            ("ключ", "This is not a token."),
            (WRONG, "This is not the token of an administrator. Nothing was stored."),
        ):
            page.locator("#token").fill(given)
            press(page, "Preview")
            expect(page.locator("#wrong-token")).to_have_text(words)
            expect(page.get_by_role("status")).to_have_text(words)
            expect(page.locator("#token")).to_be_focused()
        expect(page.locator("#in-title")).to_have_value("Evenings")
        page.locator("#token").fill(TOKEN)
        expect(page.locator("#wrong-token")).to_be_empty()
        press(page, "Preview")
        expect(page.get_by_role("button", name="Publish")).to_be_visible()
    assert service.get("/v1/tasks/evenings").status_code == 404


def fill_bit(page: Page, task_id: str) -> None:
    page.locator("#token").fill(TOKEN)
    page.get_by_label("Yes or no").check()
    write(page, id=task_id)
    press(page, "Preview")


def test_an_id_that_is_taken_is_named_in_the_preview_and_when_somebody_else_was_faster(
    browser: Browser, service: HttpProcess
) -> None:
    with filling(browser, service.url) as (page, _):
        fill_bit(page, "trains")
        expect(page.locator("#shown")).to_be_visible()
        body = {"id": "trains", "epsilon": "2", "domain": {"kind": "bit"}}
        assert service.post("/v1/tasks", body, TOKEN).status_code == 201
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("tasks never change; choose another id.")
        press(page, "Preview")
        expect(page.locator("#wrong-id")).to_contain_text("choose another id")
        expect(page.get_by_role("button", name="Publish")).to_have_count(0)


def test_a_task_that_another_store_publishes_is_not_called_published(
    browser: Browser, service: HttpProcess, broker: Mosquitto, tmp_path: Path, folder: Path
) -> None:
    body = {"id": "buses", "epsilon": "2", "domain": {"kind": "bit"}}
    assert service.post("/v1/tasks", body, TOKEN).status_code == 201
    assert json.loads(retained(broker, "buses"))["epsilon"] == "2"
    words = ["serve", "--broker", broker.url, "--store", str(tmp_path / "store"), "--http-write"]
    words += ["--http-admin-token-file", str(folder / "administrators")]
    with running(tmp_path, words, option="--http") as other, filling(browser, other.url) as (page, _):
        other.until("/readyz", 200)
        fill_bit(page, "buses")
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("Stored, and not published:")
        expect(page.locator("#said")).to_contain_text("the aggregator of another store")
    assert json.loads(retained(broker, "buses"))["epsilon"] == "2"


def test_what_no_aggregator_publishes_is_said_to_be_stored_alone(
    browser: Browser, tmp_path: Path, folder: Path
) -> None:
    with SqliteStore(tmp_path / "store"):
        pass
    words = [
        "http",
        "--store",
        str(tmp_path / "store"),
        "--write",
        "--admin-token-file",
        str(folder / "administrators"),
    ]
    with running(tmp_path, words) as service, filling(browser, service.url) as (page, _):
        page.clock.install()
        fill_bit(page, "alone")
        press(page, "Publish")
        expect(page.locator("#said")).to_contain_text("The task is stored.")
        for _ in range(20):
            with page.expect_response(lambda answer: answer.url.endswith("/v1/tasks/alone")):
                page.clock.run_for(1000)
        expect(page.locator("#said")).to_contain_text("Stored, and not published yet.")


def test_without_the_script_the_page_says_what_to_do_and_asks_for_no_token(
    browser: Browser, service: HttpProcess
) -> None:
    with filling(browser, service.url, java_script_enabled=False) as (page, _):
        expect(page.get_by_text("hush task publish")).to_be_visible()
        expect(page.locator("#token")).to_be_hidden()


def test_below_the_path_of_a_proxy_it_works_too(browser: Browser, tmp_path: Path) -> None:
    """The proxy is the browser: it asks the service for what is below /hush without that."""
    file = tmp_path / "administrators"
    file.write_text(f"anna {TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    with SqliteStore(tmp_path / "store"):
        pass
    words = ["http", "--store", str(tmp_path / "store"), "--write", "--admin-token-file", str(file)]
    with running(tmp_path, [*words, "--root-path", "/hush"]) as service:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(IN_TIME_MS)
        below = f"{service.url}/hush/"
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.route(
            f"{below}**",
            lambda route: route.fulfill(response=route.fetch(url=route.request.url.replace("/hush/", "/"))),
        )
        page.goto(f"{below}new")
        fill_bit(page, "below")
        press(page, "Publish")
        page.get_by_role("link", name="Open its page").click()
        expect(page.locator("h1")).to_have_text("below")
        assert [url for url in asked if not url.startswith(below)] == []
        page.unroute_all(behavior="wait")  # a request of the page may be on its way
        context.close()
