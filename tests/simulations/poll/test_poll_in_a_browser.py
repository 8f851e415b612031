"""Phones answer a poll in a real browser, started by its one command."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from page_browser import CHROMIUM, CHROMIUM_ARGUMENTS
from playwright.async_api import Browser, BrowserContext, Page, WebSocketRoute, async_playwright, expect
from playwright.async_api import Error as PlaywrightError
from servers import missing

from hush_aggregator import SqliteReader

pytestmark = [pytest.mark.large, pytest.mark.timeout(300)]

IN_TIME_MS = 60_000
ASK = ("How many hours did you sleep?", "--number", "0", "14", "h", "--epsilon", "2")
LARGEST = 60_000  # bytes of the page with all that it loads, compressed

expect.set_options(timeout=IN_TIME_MS)

RECORDS = """async () => {
  const request = indexedDB.open("hush-poll"), done = (it) => new Promise((resolve) => { it.onsuccess = resolve; });
  await done(request);
  const all = request.result.transaction("records").objectStore("records").getAll();
  await done(all);
  request.result.close();
  const texts = all.result.map((bytes) => new TextDecoder().decode(bytes));
  return texts.filter((text) => text[64] === "\\n").map((text) => JSON.parse(text.slice(65)));
}"""


@dataclass(frozen=True)
class Poll:
    """A command that runs."""

    address: str
    process: asyncio.subprocess.Process
    said: str

    async def end(self) -> list[dict[str, Any]]:
        """Press Ctrl-C; return the results that it prints."""
        self.process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(self.process.communicate(), 60)
        found: list[dict[str, Any]] = json.loads(out)["results"]
        return found


@asynccontextmanager
async def polling(*arguments: str) -> AsyncIterator[Poll]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hush", "poll", *arguments, "--bind", "127.0.0.1", "--port", "0", "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    try:
        while "Ctrl-C ends the poll" not in said:
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            assert line, said
            said += line
        (address,) = re.findall(r"phones: +(\S+)", said)
        yield Poll(address, process, said)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    if not CHROMIUM.exists():
        missing(f"{CHROMIUM} is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


class Network:
    """The connection of a phone, which can be taken away."""

    def __init__(self) -> None:
        self.is_up = True
        self._open: list[WebSocketRoute] = []

    async def route(self, socket: WebSocketRoute) -> None:
        if not self.is_up:
            await socket.close()
            return
        socket.connect_to_server()
        self._open.append(socket)

    async def cut(self) -> None:
        self.is_up = False
        for socket in self._open:
            await socket.close()


@dataclass(frozen=True)
class Phone:
    context: BrowserContext
    page: Page
    network: Network

    @classmethod
    async def open(cls, browser: Browser, address: str, **settings: Any) -> "Phone":  # noqa: ANN401 - of a context
        context = await browser.new_context(**settings)
        context.set_default_timeout(IN_TIME_MS)
        network = Network()
        await context.route_web_socket("**/mqtt", network.route)
        page = await context.new_page()
        await page.goto(address)
        return cls(context, page, network)

    async def fill(self, value: str) -> None:
        await self.page.get_by_role("spinbutton").fill(value)

    async def send(self) -> None:
        await self.page.get_by_role("button", name="Add noise and send").click()

    async def answer(self, value: str) -> None:
        await self.fill(value)
        await self.send()

    @property
    def receipt(self) -> Any:  # noqa: ANN401 - a locator
        return self.page.locator(".receipt")

    async def shows(self, text: str | re.Pattern[str]) -> None:
        await expect(self.receipt).to_contain_text(text)


async def answers_at_once(phone: Phone, number: int) -> None:
    await phone.answer(str(number % 15))
    await phone.shows("It has arrived")


async def answers_offline(phone: Phone, number: int) -> None:
    await phone.fill(str(number % 15))
    await phone.network.cut()
    await phone.send()
    await phone.shows("not arrived")
    phone.network.is_up = True
    await phone.shows("It has arrived")


async def reloads_halfway(phone: Phone, number: int) -> None:
    await phone.fill(str(number % 15))
    reload = "window.isOld = true; document.querySelector('form.answer').requestSubmit(); location.reload()"
    with suppress(PlaywrightError):  # the page may be gone before it says that it has done so
        await phone.page.evaluate(reload)
    await phone.page.wait_for_function("!window.isOld")
    await expect(phone.page.locator("form.answer:visible, .receipt .said").first).to_be_visible()
    if await phone.page.locator("form.answer").is_visible():  # the page was gone before the answer was stored
        await phone.answer(str(number % 15))
    await phone.shows("It has arrived")


async def reloads_offline(phone: Phone, number: int) -> None:
    await phone.fill(str(number % 15))
    await phone.network.cut()
    await phone.send()
    await phone.shows("not arrived")
    phone.network.is_up = True
    await phone.page.reload()
    await phone.shows("already")
    await phone.shows("It has arrived")


async def tries_twice(phone: Phone, number: int) -> None:
    other = Phone(phone.context, await phone.context.new_page(), phone.network)
    await other.page.goto(phone.page.url)
    for tab in (phone, other):
        await tab.fill(str(number % 15))
    await asyncio.gather(phone.send(), other.send())
    texts = []
    for tab in (phone, other):
        await tab.shows("It has arrived")
        texts.append(await tab.receipt.inner_text())
    assert sorted("already" in text for text in texts) == [False, True]
    sent = [re.search(r"Your phone sent [^:]*", text) for text in texts]
    assert sent[0] is not None
    assert sent[1] is not None
    assert sent[0][0] == sent[1][0]
    await phone.page.reload()
    await phone.shows("already")


WAYS: tuple[Callable[[Phone, int], Any], ...] = (
    answers_at_once,
    answers_offline,
    reloads_halfway,
    reloads_offline,
    tries_twice,
)


async def test_ten_phones_answer_once_each_whatever_happens(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with polling(*ASK, "--store", str(store)) as poll, browsing() as browser:
        phones = [await Phone.open(browser, poll.address) for _ in range(10)]
        await asyncio.gather(*(WAYS[number % len(WAYS)](phone, number) for number, phone in enumerate(phones)))
        made = []
        for phone in phones:
            (record,) = await phone.page.evaluate(RECORDS)
            assert record["spent"] == "2/1"
            assert record["answered"] == [[0, 0]]
            made.append(record["last"]["report"])
            await expect(phone.page.locator("#spent")).to_contain_text("epsilon 2")
        (result,) = await poll.end()
    assert result["answers"] == result["n"] == 10
    with SqliteReader(store) as reader:
        (row,) = reader.task_rows()
        counted = [report.id.hex() for report in reader.reports(row.digest, 0)]
        refused = reader.refusals(row.id)
    assert sorted(counted) == sorted(made)
    assert set(refused) <= {"duplicate"}


async def looked_at(page: Page) -> None:
    """No sideways scrolling, and nothing for axe to find."""
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


async def test_each_state_is_accessible_and_loads_nothing_else() -> None:
    trouble: list[str] = []
    sizes: list[int] = []
    async with polling(*ASK) as poll, browsing() as browser:
        context = await browser.new_context(viewport={"width": 320, "height": 700}, color_scheme="dark")
        context.on("console", lambda message: trouble.append(message.text))
        context.on("weberror", lambda error: trouble.append(str(error.error)))
        context.on(
            "request", lambda request: trouble.extend([] if origin(request.url) in poll.address else [request.url])
        )
        page = await context.new_page()
        page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", "999999"))))
        await page.goto(poll.address)
        phone = Phone(context, page, Network())
        await expect(page.get_by_role("heading", name="How many hours did you sleep?")).to_be_visible()
        await expect(page.get_by_role("heading", name="Privacy label")).to_be_visible()
        await expect(page.get_by_role("spinbutton", name="Your answer, in h")).to_be_visible()
        assert sum(sizes) < LARGEST
        await looked_at(page)
        for summary in await page.locator("summary").all():
            await summary.click()
        await looked_at(page)
        for value in ("15", "-1", ""):  # outside the bounds, or nothing: it is not sent
            await phone.answer(value)
            await expect(phone.receipt).to_be_hidden()
        await phone.answer("7")
        await phone.shows("It has arrived")
        assert re.search(r"7\sh\b.* \u2212?[\d.\s]+\sh\b", await page.locator(".said").inner_text())
        await expect(page.get_by_role("status").filter(has_text="You said")).to_be_focused()
        await looked_at(page)
        await page.reload()
        await phone.shows("already")
        await looked_at(page)
        screen = await context.new_page()
        await screen.goto(f"{poll.address}screen")
        await expect(screen.locator(".count")).to_contain_text("1 answer")
        await looked_at(screen)
        wrong = await context.new_page()
        await wrong.goto(poll.address[: poll.address.rindex("/", 0, -1)] + "/?code=wrong")
        await looked_at(wrong)
        assert [text for text in trouble if "403" not in text] == []
        trouble.clear()
        (result,) = await poll.end()
        assert result["answers"] == 1
        await expect(page.locator("#connection")).to_contain_text("No connection")
        await expect(screen.locator("#connection")).to_contain_text("The poll has ended")


def origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


async def test_the_keyboard_alone_suffices() -> None:
    async with polling("Tea?", "--labels", "tea,<script>alert(1)</script>") as poll, browsing() as browser:
        phone = await Phone.open(browser, poll.address)
        await expect(phone.page.get_by_role("radio", name="<script>alert(1)</script>")).to_be_visible()
        await phone.send()
        await expect(phone.receipt).to_be_hidden()  # nothing was chosen
        await phone.page.reload()
        await expect(phone.page.get_by_role("radio").first).to_be_visible()
        for _ in range(12):
            await phone.page.keyboard.press("Tab")
            if await phone.page.evaluate("document.activeElement.type === 'radio'"):
                break
        await phone.page.keyboard.press("Space")
        await phone.page.keyboard.press("Enter")
        await phone.shows(re.compile("“tea”.*“.+”"))
        numbers = await Phone.open(browser, poll.address)
        await expect(numbers.page.get_by_role("radio").first).to_be_visible()
        (result,) = await poll.end()
        assert result["answers"] == 1
        await expect(numbers.page.locator("form.answer")).to_be_hidden()
        await numbers.shows("This question is closed")
