"""A whole poll in this process: devices answer over its WebSocket, and the pages show what is counted."""

import asyncio
import hashlib
import json
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from polls import HOURS, TEA, Running, asking, running
from servers import Mosquitto, free_port
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from hush_aggregator import SqliteReader
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError, SubscriptionRefusedError
from hush_poll.questions import make_question
from hush_poll.scripts import digest, scripts
from hush_poll.session import Until, run_poll

pytestmark = [pytest.mark.medium, pytest.mark.face]


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    place = tmp_path / "devices"
    place.mkdir()
    return place


async def test_no_estimate_is_shown_below_ten_answers_and_all_are_counted(devices: Path) -> None:
    async with running(asking(HOURS, until=Until(answers=12))) as poll:
        for _ in range(9):
            await poll.answer(devices, 7)
        await poll.counts(9)
        _, text = await poll.get(f"{poll.path}screen/figures")
        assert 'data-figure="mean"' not in text
        await poll.answer(devices, 7)

        async def shows() -> bool:
            return 'data-figure="mean"' in (await poll.get(f"{poll.path}screen/figures"))[1]

        await poll.until(shows)
        await poll.answer(devices, 7)
        await poll.answer(devices, 7)
        (ended,) = await poll.done
    assert ended.answers == ended.result.n == 12
    assert ended.result.final
    assert "anytime" in ended.result.intervals


async def test_the_screen_shows_each_label_in_the_order_of_the_question(devices: Path) -> None:
    labels = ["on foot", "bicycle", "bus", "car"]
    task = make_question("How did you come here?", {"kind": "category", "labels": labels}, "2")
    async with running(asking(task)) as poll:
        await asyncio.gather(*(poll.answer(devices, labels[number % 4], task.id) for number in range(10)))

        async def shows() -> bool:
            return '<table class="parts categories">' in (await poll.get(f"{poll.path}screen/figures"))[1]

        await poll.until(shows)
        for path in ("screen", "screen/figures"):
            status, text = await poll.get(f"{poll.path}{path}")
            assert status == 200
            places = [text.index(label, text.index("<tbody>")) for label in labels]
            assert places == sorted(places)
            assert "#order" not in text  # a screen has no links to sort by


async def test_without_the_code_nothing_is_shown_or_taken(devices: Path) -> None:
    async with running(asking(HOURS)) as poll:
        status, text = await poll.get("/")
        assert status == 403
        assert HOURS.title not in text
        for path in ("/wrongone/", "/wrongone/screen/figures", "/?code=wrongone", "/js/poll.js", "/qr.svg"):
            began = time.monotonic()
            status, text = await poll.get(path)
            assert (status, HOURS.title in text) == (403, False), path
            assert time.monotonic() - began > 0.4, "a guess waits for half a second, at least"
        assert (await poll.get(f"/?code={poll.path.strip('/').upper()}"))[0] == 303
        assert (await poll.get("/assets/hush.css"))[0] == 200
        for path in ("/mqtt", "/wrongone/mqtt"):
            with pytest.raises(InvalidStatus):
                await connect(f"ws://127.0.0.1:{poll.port}{path}", subprotocols=[Subprotocol("mqtt")])
        assert await poll.answer(devices, 7) == "sent"
        await poll.counts(1)


async def test_an_open_poll_needs_no_code(devices: Path) -> None:
    async with running(asking(HOURS, is_open=True)) as poll:
        assert poll.path == "/"
        status, text = await poll.get("/")
        assert (status, HOURS.title in text) == (200, True)
        assert await poll.answer(devices, 7) == "sent"
        await poll.counts(1)


async def test_a_participant_may_be_a_device_and_no_more() -> None:
    async with running(asking(HOURS)) as poll, MqttTransport(poll.broker, "phone").connect() as link:
        for topic in ("hush/v1/reports/+/+", "#", "hush/v1/estimates/+", "hush/v1/status/+"):
            with pytest.raises(SubscriptionRefusedError):
                await link.subscribe(topic)
        await link.subscribe("hush/v1/tasks/+")
        topic, payload = await link.receive()
        assert (topic, payload) == (f"hush/v1/tasks/{HOURS.id}", HOURS.payload)
        await link.publish(f"hush/v1/tasks/{TEA.id}", TEA.payload)  # amqtt acknowledges what it drops
        poll.stop.set()
        topic, _ = await link.receive()  # the withdrawal comes next, and not the task of the participant
        assert topic == f"hush/v1/tasks/{HOURS.id}"


async def test_pages_of_other_sites_cannot_open_the_socket() -> None:
    async with running(asking(HOURS, is_open=True)) as poll:
        url = f"ws://127.0.0.1:{poll.port}/mqtt"
        with pytest.raises(InvalidStatus):
            await connect(url, subprotocols=[Subprotocol("mqtt")], origin=Origin("http://elsewhere.example"))
        own = Origin(f"http://127.0.0.1:{poll.port}")
        async with connect(url, subprotocols=[Subprotocol("mqtt")], origin=own):
            pass


async def test_questions_in_turn_follow_each_other(devices: Path) -> None:
    async with running(asking(HOURS, TEA, in_turn=True)) as poll:
        assert await poll.answer(devices, 7) == "sent"
        await poll.counts(1)
        poll.forward.set()

        async def shows_the_next() -> bool:
            return TEA.id in (await poll.get(f"{poll.path}screen/figures"))[1]

        await poll.until(shows_the_next)
        for _ in range(2):
            assert await poll.answer(devices, True, TEA.id) == "sent"
        await poll.counts(2)
        poll.stop.set()
        ended = await poll.done
    assert [(one.result.task.id, one.answers) for one in ended] == [(HOURS.id, 1), (TEA.id, 2)]


async def test_a_poll_in_turn_that_is_stopped_asks_no_further_question(devices: Path, tmp_path: Path) -> None:
    for expected in (1, 2):
        async with running(asking(HOURS, TEA, in_turn=True, store=tmp_path / "store")) as poll:
            assert await poll.answer(devices, 7) == "sent"
            await poll.counts(expected)
            poll.stop.set()
            ended = await poll.done
        assert [(one.result.task.id, one.answers) for one in ended] == [(HOURS.id, expected)]


async def test_a_store_is_continued_under_the_same_task(devices: Path, tmp_path: Path) -> None:
    for expected in (1, 2):
        again = make_question(HOURS.title, json.loads(HOURS.payload)["domain"], "2")
        async with running(asking(again, store=tmp_path / "store")) as poll:
            _, text = await poll.get(poll.path)
            task = text.split('data-task="')[1].split('"')[0]
            assert await poll.answer(devices, 7, task) == "sent"
            await poll.counts(expected)
            poll.stop.set()
            (ended,) = await poll.done
        assert ended.answers == expected


async def test_a_poll_in_turn_is_continued_at_the_open_question(devices: Path, tmp_path: Path) -> None:
    expected = [[2, 1], [2, 2]]
    for start in range(2):
        first, second = (
            make_question(task.title, json.loads(task.payload)["domain"], str(task.epsilon)) for task in (HOURS, TEA)
        )
        async with running(asking(first, second, in_turn=True, store=tmp_path / "store")) as poll:
            _, text = await poll.get(poll.path)
            tasks = [part.split('"')[0] for part in text.split('data-task="')[1:]]
            if not start:
                for _ in range(2):
                    assert await poll.answer(devices, 7, tasks[0]) == "sent"
                await poll.counts(2)
                poll.forward.set()
                await poll.until(partial(_shows, poll, tasks[1]))
            assert await poll.answer(devices, True, tasks[1]) == "sent"
            await poll.counts(expected[start][1])
            poll.stop.set()
            ended = await poll.done
        assert [one.answers for one in ended] == expected[start]


async def test_a_question_seen_closed_stays_closed_if_the_poll_is_cancelled(tmp_path: Path) -> None:
    async with running(asking(HOURS, TEA, in_turn=True, store=tmp_path / "store")) as poll:
        poll.forward.set()
        await poll.until(partial(_shows, poll, TEA.id))
    with closing(SqliteReader(tmp_path / "store")) as store:
        assert [store.is_closed(task.digest) for task in (HOURS, TEA)] == [True, False]


async def _shows(poll: Running, task: str) -> bool:
    return task in (await poll.get(f"{poll.path}screen/figures"))[1]


async def test_another_question_in_a_store_gets_its_own_task(devices: Path, tmp_path: Path) -> None:
    for epsilon in ("1", "2"):
        task = make_question(HOURS.title, json.loads(HOURS.payload)["domain"], epsilon)
        async with running(asking(task, store=tmp_path / "store")) as poll:
            assert await poll.answer(devices, 7, task.id) == "sent"
            await poll.counts(1)
            poll.stop.set()
            await poll.done


async def test_the_page_is_strict_and_names_its_scripts() -> None:
    async with running(asking(HOURS)) as poll:
        _, text = await poll.get(poll.path)
        head = text.partition("\r\n\r\n")[0].lower()
        assert "content-security-policy: default-src 'none'; script-src 'self'" in head
        assert "unsafe" not in head
        assert "<style" not in text
        assert " style=" not in text
        assert digest() in text
        _, listed = await poll.get(f"{poll.path}scripts.txt")
        body = listed.partition("\r\n\r\n")[2]
        assert hashlib.sha256(body.encode()).hexdigest() == digest()
        for line in body.splitlines():
            name = line.split("  ")[1]
            _, served = await poll.get(f"{poll.path}js/{name}")
            assert served.partition("\r\n\r\n")[2].encode() == scripts()[name]
            assert hashlib.sha256(scripts()[name]).hexdigest() == line.split()[0]


async def test_a_port_in_use_ends_the_command_with_a_remedy() -> None:
    async with running(asking(HOURS)) as poll:
        with pytest.raises(OptionError, match=r"^--port: .*--bind"):
            await run_poll(asking(TEA, port=poll.port), asyncio.Event(), asyncio.Event(), lambda _: None)


async def test_an_open_poll_answers_no_request_for_a_name() -> None:
    async with running(asking(HOURS, is_open=True)) as poll:
        for host, expected in (("evil.example", 403), ("localhost", 200), ("192.168.1.20:8642", 200), ("[::1]", 200)):
            reader, writer = await asyncio.open_connection("127.0.0.1", poll.port)
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert int((await reader.read()).split()[1]) == expected, host
            writer.close()


async def test_phones_answer_at_a_real_broker(devices: Path, tmp_path: Path) -> None:
    websockets = free_port()
    real = Mosquitto(tmp_path, listeners={websockets: "protocol websockets"})
    real.start()
    try:
        socket = f"ws://127.0.0.1:{websockets}/mqtt"
        async with running(asking(HOURS, broker=BrokerUrl.parse(real.url), websocket=BrokerUrl.parse(socket))) as poll:
            _, text = await poll.get(poll.path)
            assert f'data-broker="{socket}"' in text
            assert f"ws://127.0.0.1:{poll.port} ws://127.0.0.1:{websockets};" in text
            with pytest.raises(InvalidStatus):  # there is no other way in
                await connect(f"ws://127.0.0.1:{poll.port}{poll.path}mqtt", subprotocols=[Subprotocol("mqtt")])
            assert await poll.answer(devices, 7, at=BrokerUrl.parse(socket)) == "sent"
            await poll.counts(1)
            poll.stop.set()
            (ended,) = await poll.done
        assert ended.answers == 1
        async with MqttTransport(real.url, "later").connect() as link:  # nothing is left there
            await link.subscribe("hush/v1/+/+")  # what is retained would come first
            await link.publish("hush/v1/end/end", b"end")
            assert await link.receive() == ("hush/v1/end/end", b"end")
    finally:
        real.stop()
