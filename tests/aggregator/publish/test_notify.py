"""A webhook is notified once of each round whose estimate is as precise as requested, whatever fails meanwhile."""

import asyncio
import base64
import itertools
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from made_results import result_of, single
from waiting import PATIENCE_S

from hush import Task
from hush_aggregator import Estimate, PartEstimate, Result, SqliteStore
from hush_aggregator.estimate.estimates import ANYTIME, POPULATION, REPORTERS
from hush_aggregator.publish import webhook as notify
from hush_aggregator.publish.webhook import (
    EventFile,
    Notifier,
    NotifyEvent,
    PrecisionGoal,
    Webhook,
    event_file,
    notifier_of,
)
from hush_common import files
from hush_common.errors import OptionError
from hush_common.task import make_task

HEIGHTS = make_task(
    {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}}
)
SMOKE = make_task({"id": "smoke", "epsilon": "1", "domain": {"kind": "bit"}})
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["bus", "car", "on foot"]}})
STORE, OTHER_STORE = "5" * 32, "6" * 32
KEY = b"twenty-four random bytes"
HOOK = "https://hooks.example/"


def secret(directory: Path, text: str = "") -> Path:
    file = directory / "secret"
    file.write_text(text or f"whsec_{base64.b64encode(KEY).decode()}\n", encoding="ascii")
    return file


def number(half_width: float, target: str = ANYTIME, *, round_: int = 0, task: Task = HEIGHTS) -> Result:
    narrow = dict.fromkeys((REPORTERS, POPULATION), (170.0, 170.0 + 2 * half_width / 10))
    made = single(1000, mean=170.5, intervals={**narrow, target: (170.0, 170.0 + 2 * half_width)})
    return result_of(task, made, round_=round_)


def shares(*half_widths: float, joint: Sequence[float] = ()) -> Result:
    def band(half: float) -> dict[str, tuple[float, float]]:
        return {ANYTIME: (0.2, 0.2 + 2 * half), REPORTERS: (0.2, 0.2001)}

    parts = [
        PartEstimate(name=name, n=50, mean=0.3, intervals=band(half), joint_intervals=band(both))
        for name, half, both in zip(("bus", "car", "on foot"), half_widths, joint or half_widths, strict=True)
    ]
    return result_of(WAY, Estimate(50, tuple(parts)))


EXACT = shares(0.01, 0.01, 0.01)

# Goals


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("heights=0.5", ("heights", "", 0.5)),
        ("smoke=2%", ("smoke", "", 0.02)),
        ("way:on foot=1.5%", ("way", "on foot", 0.015)),
        ("way:a=b=1", ("way", "a=b", 1.0)),
        ("heights=1e-3", ("heights", "", 0.001)),
    ],
)
def test_a_goal_is_a_task_perhaps_a_part_and_a_value(text: str, found: tuple[str, str, float]) -> None:
    goal = PrecisionGoal.parse(text)
    assert (goal.task, goal.part, goal.half_width) == found


@pytest.mark.parametrize("text", ["", "heights", "=1", "heights=", "heights=0", "heights=-1", "a=inf", "a=nan", "a=%"])
def test_an_invalid_goal_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"--notify-precision: .*heights=0.5"):
        PrecisionGoal.parse(text)


@pytest.mark.parametrize(
    ("text", "task", "words"),
    [
        ("heights=49.9", HEIGHTS, ""),
        ("heights=50", HEIGHTS, "±50"),
        ("heights=2%", HEIGHTS, "%"),
        ("smoke=2", SMOKE, "±0.5"),
        ("smoke:yes=2%", SMOKE, "no part"),
        ("way:car=2%", WAY, ""),
        ("way:tram=2%", WAY, "no part"),
    ],
)
def test_a_goal_that_is_never_or_always_reached_is_a_mistake(text: str, task: Task, words: str) -> None:
    problem = PrecisionGoal.parse(text).problem(task)
    assert words in problem
    assert bool(problem) == bool(words)


def test_the_interval_that_may_be_watched_decides() -> None:
    goal = PrecisionGoal.parse("heights=1")
    assert goal.reached_by(number(1.0)) is not None
    assert goal.reached_by(number(1.001)) is None
    assert goal.reached_by(number(0.1, target="enrolled")) is None  # nothing that may be watched is there


@pytest.mark.parametrize(
    ("goal", "result", "widest"),
    [
        ("way=2%", shares(0.01, 0.019, 0.01, joint=(0.015, 0.025, 0.015)), None),  # simultaneously for all
        ("way:car=2%", shares(0.01, 0.019, 0.01, joint=(0.015, 0.025, 0.015)), "car"),
        ("way:car=2%", shares(0.01, 0.021, 0.01), None),
        ("way=2%", shares(0.01, 0.019, 0.01), "car"),
        ("way=2%", result_of(WAY, Estimate(0)), None),
        ("way=2%", replace(EXACT, estimate=Estimate(50, (PartEstimate(name="bus", n=50), *EXACT.parts[1:]))), None),
    ],
)
def test_all_categories_are_known_simultaneously_or_one_alone(goal: str, result: Result, widest: str | None) -> None:
    found = PrecisionGoal.parse(goal).reached_by(result)
    assert (None if found is None else found[0].name) == widest


# Events


def event_of(goal: str, result: Result, store: str = STORE) -> NotifyEvent:
    event = NotifyEvent.of(PrecisionGoal.parse(goal), result, store)
    assert event is not None
    return event


def test_an_event_has_only_figures_of_the_published_estimate() -> None:
    result = number(0.75)
    document = result.to_document()
    assert json.loads(event_of("heights=1", result).body) == {
        "type": "precision.reached",
        "timestamp": document["updated_at"],
        "data": {
            **{name: document[name] for name in ("task", "digest", "round", "n", "confidence", "mean", "unit")},
            "interval": document["intervals"]["anytime"],
            "half_width": 0.75,
            "precision": 1.0,
        },
    }


def test_an_id_is_that_of_the_store_the_round_and_the_goal() -> None:
    first = event_of("heights=1", number(0.5))
    assert event_of("heights=1.0", number(0.4)).id == event_of("heights=100%", number(0.4)).id == first.id
    titled = make_task({**json.loads(HEIGHTS.payload), "title": "another one"})
    others = [
        event_of("heights=2", number(0.5)),
        event_of("heights=1", number(0.5, round_=1)),
        event_of("heights=1", number(0.5), OTHER_STORE),
        event_of("heights=1", number(0.5, task=titled)),
        event_of("way=2%", shares(0.01, 0.01, 0.01)),
        event_of("way:car=2%", shares(0.01, 0.01, 0.01)),
    ]
    assert len({first.id, *(one.id for one in others)}) == 1 + len(others)


# Requests


def test_a_signature_is_that_of_the_standard(tmp_path: Path) -> None:
    """The example of the specification of Standard Webhooks, version 1.0.0."""
    hook = Webhook(HOOK, secret(tmp_path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    event = NotifyEvent("msg_p5jXN8AQM9LWM0D4loKWxJek", "heights", 0, b'{"test": 2432232314}')
    headers = hook.headers(event, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (event.id, "1614265330")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example/",
        "receiver.example",
        "https://?receiver",
        "https://hooks.example:x/",
        "https://h\N{LATIN SMALL LETTER O WITH DIAERESIS}ks.example/",
        "https://hooks.example/a\r\nX: y",
        "https://alice:pw@hooks.example/",
        "https://hooks.example/#x",
        "https://hooks.example/a b",
        "http://hooks.example/",
        "http://10.0.0.1/",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^--notify: .*https://") as caught:
        Webhook(url, secret(tmp_path))
    assert url not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost/x", "http://[::1]:8080/x", "http://127.0.0.1/x"])
def test_this_machine_needs_no_tls_and_no_address_is_printed_whole(url: str, tmp_path: Path) -> None:
    hook = Webhook(f"{url}?token=7", secret(tmp_path))
    assert str(hook) == url.removesuffix("x") + "…"


@pytest.mark.parametrize("text", ["secret\n", "whsec_!!!\n", "whsec_c2hvcnQ=\n", "\n", f"whsec_{'A' * 100}\n"])
def test_an_invalid_secret_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="whsec_ ") as caught:
        Webhook(HOOK, secret(tmp_path, text))
    assert text.strip()[6:] == "" or text.strip()[6:] not in str(caught.value)


# The file


def test_the_file_has_what_waits_and_after_that_only_ids(tmp_path: Path) -> None:
    path, event = event_file(tmp_path / "hush.sqlite3"), event_of("heights=1", number(0.5))
    events = EventFile(path)
    events.add(event)
    assert EventFile(path).waiting == [event]
    events.finish(event)
    again = EventFile(path)
    assert (again.waiting, event.id in again) == ([], True)
    assert json.loads(path.read_bytes()) == {"v": 1, "done": [event.id], "waiting": []}  # and no time
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"v":1,"done":[],"waiting":[{"id":1}]}', b"\xff", b"null"])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3.notify"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=r"hush\.sqlite3\.notify.*damaged"):
        EventFile(path)


# Sending


@dataclass
class World:
    """A receiver, and a service that may be killed at any moment and started again.

    Attributes:
        directory: of the file with the events.
        answers: of the receiver, one after the other; the last one for ever. An error is raised.
        received: events that reached it, with the time.
    """

    directory: Path
    answers: list[int | Exception] = field(default_factory=lambda: [204])
    received: list[tuple[float, str]] = field(default_factory=list)
    now: Callable[[], float] = lambda: 0.0

    def post(self, event: NotifyEvent) -> int:
        self.received.append((self.now(), event.id))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def started(self, *goals: str) -> Notifier:
        events = EventFile(event_file(self.directory / "hush.sqlite3"))
        parsed = [PrecisionGoal.parse(goal) for goal in goals or ("heights=1",)]
        return Notifier(parsed, events, Webhook(HOOK, secret(self.directory)), STORE, post=self.post)

    @asynccontextmanager
    async def running(self, *goals: str) -> AsyncIterator[Notifier]:
        """A service, until its process is gone."""
        self.now = asyncio.get_running_loop().time
        notifier = self.started(*goals)
        task = asyncio.create_task(notifier.run())
        try:
            yield notifier
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def live(self, *results: Result, goals: Sequence[str] = (), seconds: float = 5.0) -> None:
        """Publish these, one a second; after some seconds the process is gone."""
        async with self.running(*goals) as notifier:
            for result in results:
                notifier.published(result)
                await asyncio.sleep(1)
            await asyncio.sleep(seconds)

    @property
    def ids(self) -> list[str]:
        return [name for _, name in self.received]


class ThreadAtOnce(threading.Thread):
    """A thread that is over when it was started: threads know no virtual time."""

    def start(self) -> None:
        self.run()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(threading, "Thread", ThreadAtOnce)
    return World(tmp_path)


virtual = pytest.mark.virtual_time


@virtual
async def test_each_round_is_reported_once_however_often_it_is_published(world: World) -> None:
    rounds = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
    draft = json.loads(HEIGHTS.payload)
    daily = make_task({**{name: draft[name] for name in ("id", "epsilon", "domain")}, **rounds})
    results = [number(2.0), number(0.9), number(0.8), number(0.7, round_=1), number(3.0), number(0.5)]
    await world.live(*(replace(one, task=daily) for one in results))
    assert len(world.ids) == len(set(world.ids)) == 2


@virtual
async def test_nothing_is_sent_before_the_goal_or_of_another_task(world: World) -> None:
    await world.live(number(1.5), shares(0.01, 0.01, 0.01))
    assert world.received == []


@virtual
async def test_an_accepted_event_is_never_sent_again_after_a_restart(world: World) -> None:
    for _ in range(3):
        await world.live(number(0.5), number(0.4))
    assert len(world.ids) == 1


@virtual
async def test_a_receiver_that_fails_is_tried_again_less_and_less_often(world: World) -> None:
    world.answers = [500, ConnectionRefusedError(111, "Connection refused"), HTTPException(), 302, 404]
    await world.live(number(0.5), seconds=2 * 86400)
    waits = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(world.received)]
    assert len(set(world.ids)) == 1
    assert all(doubled / 2 <= wait <= doubled for wait, doubled in zip(waits[:5], (1, 2, 4, 8, 16), strict=True))
    assert 1800 <= min(waits[20:]) <= max(waits[20:]) <= 3600  # for ever, at least once an hour


@virtual
async def test_an_event_that_was_not_accepted_is_sent_after_a_restart(world: World) -> None:
    world.answers = [500]
    await world.live(number(0.5))
    world.answers = [200]
    await world.live(number(1.5))  # the estimate has changed
    assert len(set(world.ids)) == 1
    before = len(world.ids)
    await world.live(number(0.5))
    assert len(world.ids) == before


@virtual
async def test_an_event_whose_answer_was_lost_comes_again_with_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_events: EventFile, _event: NotifyEvent) -> None:
        raise asyncio.CancelledError  # the process ends here

    with monkeypatch.context() as crash:
        crash.setattr(EventFile, "finish", killed)
        await world.live(number(0.5))
    await world.live()
    assert len(world.ids) == 2
    assert len(set(world.ids)) == 1
    await world.live(number(0.5))
    assert len(world.ids) == 2


@virtual
async def test_nothing_is_sent_that_could_not_be_written_before(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = [True]

    def replace_file(path: Path, content: bytes) -> None:
        if failing[0]:
            raise OSError(28, "No space left on device")
        files.replace_file(path, content)

    monkeypatch.setattr(notify, "replace_file", replace_file)
    async with world.running() as notifier:
        notifier.published(number(0.5))
        await asyncio.sleep(60)
        assert (world.received, notifier.waiting) == ([], 1)
        (line,) = [text for text in caplog.messages if "--notify" in text]
        assert "No space left" in line
        failing[0] = False
        await asyncio.sleep(200)
        assert len(world.ids) == 1


@virtual
async def test_a_receiver_that_wants_no_more_gets_no_more(world: World) -> None:
    world.answers = [410]
    await world.live(number(0.5), seconds=600)
    assert len(world.received) == 1


@virtual
async def test_a_new_event_does_not_wait_for_the_next_attempt_of_another(world: World) -> None:
    world.answers = [503]
    async with world.running("heights=1", "heights=5") as notifier:
        notifier.published(number(3.0))
        await asyncio.sleep(4000)  # attempts are rare by now
        before, now = len(world.ids), world.now()
        notifier.published(number(0.5))
        await asyncio.sleep(1)
        (second,) = {*world.ids[before:]} - {world.ids[0]}
        assert next(moment for moment, name in world.received if name == second) - now < 1


@virtual
async def test_each_line_that_follows_from_reports_waits_for_the_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.answers = [500, 200]
    await world.live(number(0.5))
    lines = [record for record in caplog.records if "task heights, round 0" in record.getMessage()]
    assert ["500" in record.getMessage() for record in lines] == [True, False]
    assert all(record.hush_held for record in lines)  # type: ignore[attr-defined]


async def test_a_receiver_that_never_answers_does_not_delay_the_end(tmp_path: Path) -> None:
    asked, over, world = threading.Event(), threading.Event(), World(tmp_path)
    threads = {*threading.enumerate()}

    def post(_: NotifyEvent) -> int:
        asked.set()
        over.wait()
        return 204

    world.post = post  # type: ignore[method-assign,assignment]
    try:
        async with world.running() as notifier:
            notifier.published(number(0.5))
            assert await asyncio.to_thread(asked.wait, PATIENCE_S)
        waiting = [one for one in {*threading.enumerate()} - threads if "notify" in one.name]
        assert [one.daemon for one in waiting] == [True]  # for which the end of the process does not wait
    finally:
        over.set()


# Options


def test_the_options_belong_together(tmp_path: Path) -> None:
    path, file = tmp_path / "hush.sqlite3", secret(tmp_path)
    with SqliteStore(path) as store:
        store.add_task(SMOKE)

        def made(url: str, secret_file: Path | None, *goals: str, tasks: Sequence[Task] = ()) -> Notifier | None:
            return notifier_of(url, secret_file, goals, path, store, tasks=tasks)

        assert made("", None) is None
        wrong: list[tuple[tuple[Any, ...], str]] = [
            (("", file), r"--notify-secret-file: .*--notify"),
            (("", None, "a=1"), r"--notify-precision: .*--notify"),
            ((HOOK, None, "a=1"), r"--notify: .*--notify-secret-file"),
            ((HOOK, file), r"--notify: .*--notify-precision"),
            ((HOOK, file, "smoke=2"), "±0.5"),
        ]
        for arguments, words in wrong:
            with pytest.raises(OptionError, match=words):
                made(*arguments)
        with pytest.raises(OptionError, match="±50"):
            made(HOOK, file, "heights=50", tasks=(HEIGHTS,))
        assert made(HOOK, file, "smoke=2%", "heights=1", "a-task-that-comes-later=3", tasks=(HEIGHTS,)) is not None
