"""The JavaScript device in a real browser: IndexedDB, MQTT over WebSocket, and a page that is served without TLS."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from page_browser import browsing
from playwright.sync_api import Browser, BrowserContext, Page, expect
from port_cases import VECTORS
from reports_seen import ReportsSeen, seeing_reports
from servers import Mosquitto, free_port, need

from hush_client.browser import browser_modules

pytestmark = pytest.mark.large


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


@contextmanager
def served_page(directory: Path, page: str, modules: Mapping[str, Path], port: int) -> Iterator[None]:
    """A server that has a page at `/` and modules below `/hush/`; `directory` is for copies of them."""
    (directory / "hush").mkdir(parents=True, exist_ok=True)
    (directory / "index.html").write_text(page, encoding="utf-8")
    for name, path in modules.items():
        (directory / "hush" / name).write_bytes(path.read_bytes())
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


IN_TIME_MS = 60_000
HOST = "hush.test"
"""A name that is not the loopback's: the page is no secure context, as over Wi-Fi without TLS."""
PAGE = """<!doctype html><meta charset="utf-8"><title>hush</title><p id="state">loading</p>
<script type="module">
import * as hush from "/hush/index.js";
window.hush = hush;
window.start = async (url, options = {}) => {
  window.storage = await hush.openIndexedDB(options.name);
  window.device = await new hush.Device({ url, storage, device: "phone-1", spread: 0, ...options }).open();
};
document.querySelector("#state").textContent = "ready";
</script>
"""
TASK = {
    "domain": {"kind": "number", "lower": 120.0, "outside": "clamp", "unit": "cm", "upper": 220.0},
    "epsilon": "1",
    "id": "heights",
    "mechanism": "laplace",
    "rounds": 1,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    with served_page(tmp_path_factory.mktemp("site"), PAGE, browser_modules(), port):
        yield f"http://{HOST}:{port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing(f"--host-resolver-rules=MAP {HOST} 127.0.0.1") as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    found = browser.new_context()
    yield found
    found.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    port = free_port()
    server = Mosquitto(tmp_path, listeners={port: "protocol websockets\nallow_anonymous true"})
    server.start()
    publish(server, TASK)
    yield server
    server.stop()


def publish(broker: Mosquitto, task: dict[str, Any]) -> None:
    command = [need("mosquitto_pub"), "-p", str(broker.port), "-q", "1", "-r", "-t", f"hush/v1/tasks/{task['id']}"]
    subprocess.run([*command, "-m", json.dumps(task)], check=True)


def websocket(broker: Mosquitto) -> str:
    (port,) = broker.listeners
    return f"ws://127.0.0.1:{port}/"


@pytest.fixture
def reports(broker: Mosquitto, tmp_path: Path) -> Iterator[ReportsSeen]:
    with seeing_reports(broker, tmp_path / "reports") as seen:
        yield seen


def opened(context: BrowserContext, site: str, broker: Mosquitto | None = None, **options: object) -> Page:
    page = context.new_page()
    page.set_default_timeout(IN_TIME_MS)
    page.goto(site)
    expect(page.locator("#state")).to_have_text("ready", timeout=IN_TIME_MS)
    if broker is not None:
        page.evaluate("([url, options]) => start(url, options)", [websocket(broker), options])
    return page


def answer(page: Page, value: object = 172, timeout: float = 60) -> dict[str, Any]:
    receipt: dict[str, Any] = page.evaluate(
        "([value, timeout]) => device.answer('heights', value, { timeout })", [value, timeout]
    )
    return receipt


def spent(page: Page) -> str:
    total: str = page.evaluate("async () => (await device.ledger()).total")
    return total


def test_a_page_without_tls_answers_over_a_websocket(
    context: BrowserContext, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    page = opened(context, site, broker)
    assert page.evaluate("[isSecureContext, typeof crypto.subtle, typeof navigator.locks]") == [
        False,
        "undefined",
        "undefined",
    ]
    assert page.evaluate("async () => (await device.admit('heights')).status") == "open"
    receipt = answer(page)
    assert (receipt["status"], receipt["spent"]) == ("sent", "1")
    assert receipt["text"].endswith(" cm")
    assert {frame[48:80] for frame in reports.distinct()} == {receipt["report"]}


def test_the_browser_makes_the_reports_of_the_vectors(context: BrowserContext, site: str) -> None:
    page = opened(context, site)
    script = """(vectors) => vectors.map(({ task, value, now, most, random }) => {
      const bytes = hush.unhex(random), read = hush.readTask(new TextEncoder().encode(task));
      let at = 0;
      const source = (size) => bytes.slice(at, (at += size)), round = hush.currentRound(read, now);
      const { offer } = hush.chooseOffer(read, { maxEpsilon: most });
      return hush.hex(hush.encodeFrame([hush.draw(read, value, { round, offer, random: source })]));
    })"""
    vectors = [
        {name: vector[name] for name in ("task", "value", "now", "most", "random")} for vector in VECTORS["answers"]
    ]
    assert len(vectors) > 600
    assert page.evaluate(script, vectors) == [vector["frame"] for vector in VECTORS["answers"]]


def test_after_a_reload_the_round_is_answered(
    context: BrowserContext, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    page = opened(context, site, broker)
    first = answer(page)
    page.close()
    again = opened(context, site, broker)
    receipt = answer(again, 190)
    assert (receipt["status"], receipt["report"], receipt["body"]) == ("answered", first["report"], first["body"])
    assert spent(again) == "1"
    assert len(reports.distinct()) == 1


def test_an_answer_made_offline_is_sent_after_a_reload_unchanged(
    context: BrowserContext, site: str, broker: Mosquitto, tmp_path: Path
) -> None:
    page = opened(context, site, broker)
    page.evaluate("async () => { await device.task('heights'); }")
    broker.stop()
    page.wait_for_function("!device.connected")
    receipt = answer(page, timeout=0.2)
    assert receipt["status"] == "queued"
    page.close()
    offline = opened(context, site, broker)
    assert offline.evaluate("device.waiting") == 1
    offline.close()
    broker.start()
    publish(broker, TASK)
    with seeing_reports(broker, tmp_path / "later") as seen:
        later = opened(context, site, broker)
        assert later.evaluate("device.flush()") is True
        assert spent(later) == "1"
        assert {frame[48:80] for frame in seen.distinct()} == {receipt["report"]}


def test_pages_that_are_closed_halfway_are_charged_once(
    context: BrowserContext, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    for delay in (0, 1, 3, 6, 10, 20, 40):
        page = opened(context, site, broker)
        page.evaluate("async () => { await device.task('heights'); void device.answer('heights', 172); }")
        page.wait_for_timeout(delay)
        page.close()
    last = opened(context, site, broker)
    receipt = answer(last)
    assert last.evaluate("device.flush()") is True
    assert spent(last) == "1"
    assert {frame[48:80] for frame in reports.distinct()} == {receipt["report"]}


def test_two_tabs_at_once_answer_a_round_once(
    context: BrowserContext, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    tabs = [opened(context, site, broker) for _ in range(3)]
    for tab in tabs:
        tab.evaluate("async () => { await device.task('heights'); }")
    start = tabs[0].evaluate("Date.now()") + 1500
    for tab in tabs:
        tab.evaluate(
            """(start) => { setTimeout(() => {
              window.receipts = Promise.all([1, 2, 3].map(() => device.answer('heights', 172)));
            }, start - Date.now()); }""",
            start,
        )
    for tab in tabs:
        tab.wait_for_function("window.receipts")
    receipts = [receipt for tab in tabs for receipt in tab.evaluate("window.receipts")]
    assert [one["status"] for one in receipts].count("sent") == 1
    assert [one["status"] for one in receipts].count("answered") == 8
    assert len({one["report"] for one in receipts}) == 1
    assert spent(tabs[0]) == "1"
    assert len(reports.distinct()) == 1


def test_a_browser_that_blocks_the_storage_is_reported_first(
    context: BrowserContext, site: str, broker: Mosquitto
) -> None:
    page = opened(context, site)
    for block in (
        "indexedDB.__proto__.open = () => { throw new DOMException('no', 'SecurityError'); }",
        "indexedDB.__proto__.open = () => { const it = {}; setTimeout(() => it.onerror()); return it; }",
        "Object.defineProperty(window, 'indexedDB', { value: undefined })",
    ):
        page.evaluate(f"() => {{ {block} }}")
        told = page.evaluate(
            "(url) => start(url).then(() => 'open', (error) => [error.status, error.message])", websocket(broker)
        )
        assert told[0] == "storage"
        assert "does not let the page store anything" in told[1]


BLOCKED = """() => {
  const policy = document.createElement("meta");
  Object.assign(policy, { httpEquiv: "Content-Security-Policy", content: "connect-src 'self'" });
  document.head.append(policy);
}"""


def why_unanswered(page: Page, url: str) -> tuple[str, str]:
    """Status and message of an answer, once the first attempt to connect has ended."""
    page.evaluate("([url, options]) => start(url, options)", [url, {}])
    page.wait_for_function("device.trouble")
    script = "device.answer('heights', 172, { timeout: 0.1 }).then(() => [], (error) => [error.status, error.message])"
    status, message = page.evaluate(script)
    return status, message


def test_an_error_names_its_cause(context: BrowserContext, site: str, broker: Mosquitto) -> None:
    status, message = why_unanswered(opened(context, site), f"ws://127.0.0.1:{free_port()}/")
    assert status == "network"
    assert "no connection; check the address" in message
    page = opened(context, site)
    page.evaluate(BLOCKED)
    status, message = why_unanswered(page, websocket(broker))
    assert status == "network"
    assert "Content-Security-Policy" in message
    assert "connect-src" in message
    page = opened(context, site, broker)
    page.wait_for_function("device.connected")
    script = "device.answer('nosuch', 172, { timeout: 1 }).catch((error) => [error.status, error.message])"
    status, message = page.evaluate(script)
    assert status == "no_task"
    assert "nosuch" in message
    refused = page.evaluate("start('mqtt://broker').catch((error) => [error.status, error.message])")
    assert refused[0] == "argument"
    assert "ws://" in refused[1]


def test_an_event_of_the_network_does_not_end_the_time_of_a_source(
    context: BrowserContext, site: str, broker: Mosquitto
) -> None:
    page = opened(context, site, broker)
    page.evaluate("""() => {
      window.receipts = [];
      const source = () => new Promise((resolve) => { window.tell = resolve; });
      const onReceipt = (receipt) => receipts.push(receipt.value);
      void device.answerEachRound("heights", source, { sourceTimeout: 3600, onReceipt });
    }""")
    page.wait_for_function("Boolean(window.tell)")
    for _ in range(2):
        context.set_offline(True)
        context.set_offline(False)
        page.evaluate("dispatchEvent(new Event('online'))")
    assert page.evaluate("receipts") == []
    assert spent(page) == "0"
    page.evaluate("tell(172)")
    page.wait_for_function("receipts.length")
    assert page.evaluate("receipts") == ["used"]


def test_a_storage_that_is_full_stops_the_answer_and_nothing_is_sent(
    context: BrowserContext, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    page = opened(context, site, broker)
    page.evaluate("async () => { await device.task('heights'); }")
    page.evaluate("() => { window.put = IDBObjectStore.prototype.put; }")
    for full in (
        "throw new DOMException('full', 'QuotaExceededError')",
        "const request = put.apply(this, words); request.onsuccess = () => this.transaction.abort(); return request",
    ):
        page.evaluate(f"() => {{ IDBObjectStore.prototype.put = function (...words) {{ {full}; }}; }}")
        told = page.evaluate("device.answer('heights', 172).then((it) => it.status, (error) => error.status)")
        assert told == "storage"
    page.evaluate("() => { IDBObjectStore.prototype.put = put; }")
    assert page.evaluate("async () => (await device.ledger()).total") == "0"
    assert reports.distinct() == set()
    assert answer(page)["status"] == "sent"


def test_a_private_window_has_its_own_state(
    browser: Browser, site: str, broker: Mosquitto, reports: ReportsSeen
) -> None:
    ids = set()
    for _ in range(2):
        window = browser.new_context()
        ids.add(answer(opened(window, site, broker))["report"])
        window.close()
    assert len(ids) == 2
    assert len(reports.distinct()) == 2
