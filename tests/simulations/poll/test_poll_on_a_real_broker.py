"""`hush poll` on the mosquitto of `hush broker config`: TLS, and a login for each phone."""

import base64
import hashlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hardened import HOST, Hardened, hush
from page_browser import browsing
from playwright.sync_api import Page, expect
from polls import polling, reports_of
from servers import need

from hush_client import MqttTransport
from hush_common.task import decode_task
from hush_common.topics import report_topic

pytestmark = pytest.mark.large

PHONES = ("phone-1", "phone-2", "phone-3")
ASK = ("Tea?", "--yes-no", "--bind", HOST, "--port", "0", "--json")
IN_TIME_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    users = {"aggregator": "aggregator"} | dict.fromkeys(PHONES, "device")
    with Hardened(tmp_path_factory.mktemp("hardened") / "broker", users).running() as hardened:
        yield hardened


@pytest.fixture
def logins(broker: Hardened, tmp_path: Path) -> Path:
    """A file of logins, as docs/poll.md makes it."""
    file = tmp_path / "logins"
    file.write_text("".join(f"{name}:{broker.password(name)}\n" for name in PHONES), encoding="utf-8")
    return file


def options(broker: Hardened, login: str = "", authority: str = "ca.pem") -> tuple[str, ...]:
    ca = f"?ca={broker.home / authority}" if authority else ""
    return (*broker.login("aggregator"), "--websocket", f"wss://{login}{HOST}:{broker.websockets}/{ca}")


def end(process: "subprocess.Popen[str]") -> int:
    """Press Ctrl-C; return how many answers were counted."""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    (result,) = json.loads(out)["results"]
    answers: int = result["answers"]
    return answers


def key_hash(certificate: Path) -> str:
    """What Chromium compares with `--ignore-certificate-errors-spki-list`."""
    openssl = need("openssl")
    public = subprocess.run([openssl, "x509", "-in", certificate, "-pubkey", "-noout"], check=True, capture_output=True)
    command = [openssl, "pkey", "-pubin", "-outform", "der"]
    key = subprocess.run(command, input=public.stdout, check=True, capture_output=True).stdout
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def answer(page: Page) -> None:
    page.get_by_role("radio", name="Yes").check(timeout=IN_TIME_MS)
    page.get_by_role("button", name="Add noise and send").click()
    expect(page.locator(".receipt")).to_contain_text("It has arrived", timeout=IN_TIME_MS)


def test_each_browser_answers_over_tls_with_its_own_login(broker: Hardened, logins: Path) -> None:
    trusting = f"--ignore-certificate-errors-spki-list={key_hash(broker.home / 'broker.crt')}"
    with polling(*ASK, *options(broker), "--logins", str(logins)) as poll, browsing(trusting) as browser:
        pages = [browser.new_context().new_page() for _ in range(4)]
        sockets: list[str] = []
        pages[0].on("websocket", lambda socket: sockets.append(socket.url))
        for page in pages[:3]:
            page.goto(poll.address)
            answer(page)
        assert sockets[0].startswith(f"wss://{HOST}:{broker.websockets}/")
        assert "ca=" not in sockets[0]
        pages[3].goto(poll.address)
        expect(pages[3].locator("#waiting")).to_contain_text("taken", timeout=IN_TIME_MS)
        pages[0].reload()
        expect(pages[0].locator(".receipt")).to_contain_text("already", timeout=IN_TIME_MS)
        for page in pages[:3]:
            expect(page.locator("#connection")).to_have_text("Connected", timeout=IN_TIME_MS)
        assert end(poll.process) == 3  # the rules of the broker drop a report under the name of another login
    taken = logins.with_name("logins.taken").read_text(encoding="ascii").split()[1::2]
    assert sorted(taken) == sorted(PHONES)


async def test_a_program_with_a_login_counts_once(broker: Hardened, logins: Path) -> None:
    """With `--logins` the quota is 1, whatever the program of a participant sends."""
    with polling(*ASK, *options(broker), "--logins", str(logins)) as poll:
        for name, n in (("phone-1", 3), ("phone-2", 1)):
            phone = f"wss://{name}:{broker.password(name)}@{HOST}:{broker.websockets}/?ca={broker.home / 'ca.pem'}"
            async with MqttTransport(phone, "program").connect() as link:
                await link.subscribe("hush/v1/tasks/+")
                task = decode_task((await link.receive())[1])
                for _ in range(n):
                    await link.publish(report_topic(task.id, name), reports_of(task, 1))
        assert end(poll.process) == 2


def test_what_keeps_phones_from_answering_is_an_error_before(broker: Hardened, logins: Path) -> None:
    shared = options(broker, f"phone-1:{broker.password('phone-1')}@")
    own = ("--logins", str(logins))
    wrong = logins.with_name("wrong")
    wrong.write_text(logins.read_text(encoding="utf-8") + "phone-9:stale-secret\n", encoding="utf-8")
    for arguments, message in (
        (shared, "--websocket: "),
        (options(broker), "--websocket: "),
        ((*options(broker), "--logins", str(wrong)), "phone-9"),
        ((*options(broker, authority=""), *own), "--websocket: "),
        ((*shared, *own), "--logins: "),
    ):
        run = hush("poll", *ASK, *arguments)
        assert run.returncode == 2, run.stderr
        last = run.stderr.strip().splitlines()[-1]
        assert message in last
        assert "stale-secret" not in run.stderr
        assert broker.password("phone-1") not in run.stderr
