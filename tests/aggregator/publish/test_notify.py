"""A webhook is notified once of each round whose estimate is as precise as requested, whatever fails meanwhile."""

import asyncio
import base64
import hmac
import itertools
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from made_results import result_of, single
from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import Estimate, PartEstimate, Result, SqliteStore, notify
from hush_aggregator.estimate.estimates import ANYTIME, POPULATION, REPORTERS
from hush_aggregator.notify import EventFile, Notifier, NotifyEvent, PrecisionGoal, Webhook, event_file, notifier_of
from hush_common import files
from hush_common.errors import OptionError
from hush_common.task import make_task

HEIGHTS = make_task(
    {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}}
)
SMOKE = make_task({"id": "smoke", "epsilon": "1", "domain": {"kind": "bit"}})
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["bus", "car", "on foot"]}})
STORE = "5" * 32
OTHER_STORE = "6" * 32
KEY = b"twenty-four random bytes"


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
def test_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"--notify-precision: .* is not TASK=VALUE; write for example heights=0.5"):
        PrecisionGoal.parse(text)


@pytest.mark.parametrize(
    ("text", "task", "problem"),
    [
        ("heights=49.9", HEIGHTS, ""),
        ("heights=50", HEIGHTS, "without any report it is known to ±50; write a smaller value"),
        ("heights=2%", HEIGHTS, "task heights does not ask for a share; write the value in its unit, without %"),
        ("smoke=2", SMOKE, "without any report it is known to ±0.5; write a smaller value"),
        (
            "smoke:yes=2%",
            SMOKE,
            "task smoke has no part of that name; leave it out, or name a category or a coordinate",
        ),
        ("way:car=2%", WAY, ""),
        ("way:tram=2%", WAY, "task way has no part of that name; leave it out, or name a category or a coordinate"),
    ],
)
def test_a_goal_that_a_task_cannot_reach_or_always_has_is_a_mistake(text: str, task: Task, problem: str) -> None:
    assert PrecisionGoal.parse(text).problem(task) == problem


def test_the_interval_that_may_be_watched_decides() -> None:
    goal = PrecisionGoal.parse("heights=1")
    assert goal.reached_by(number(1.0)) is not None
    assert goal.reached_by(number(1.001)) is None
    assert goal.reached_by(number(0.1, target="enrolled")) is None  # nothing that may be watched is there


def test_all_categories_have_to_be_known_simultaneously_and_a_named_one_alone() -> None:
    all_, one = PrecisionGoal.parse("way=2%"), PrecisionGoal.parse("way:car=2%")
    jointly_wide = shares(0.01, 0.019, 0.01, joint=(0.015, 0.025, 0.015))
    assert all_.reached_by(jointly_wide) is None
    reached = one.reached_by(jointly_wide)
    assert reached is not None
    assert reached[0].name == "car"
    assert one.reached_by(shares(0.01, 0.021, 0.01)) is None
    widest = all_.reached_by(shares(0.01, 0.019, 0.01))
    assert widest is not None
    assert widest[0].name == "car"


def test_a_part_without_an_interval_is_not_known() -> None:
    result = shares(0.01, 0.01, 0.01)
    first, *others = result.estimate.parts
    broken = replace(result, estimate=Estimate(50, (replace(first, joint_intervals={}), *others)))
    assert PrecisionGoal.parse("way=2%").reached_by(broken) is None
    assert PrecisionGoal.parse("way=2%").reached_by(result_of(WAY, Estimate(0))) is None


# Events


def event_of(goal: str, result: Result, store: str = STORE) -> NotifyEvent:
    event = NotifyEvent.of(PrecisionGoal.parse(goal), result, store)
    assert event is not None
    return event


def test_an_event_has_only_figures_of_the_published_estimate() -> None:
    result = number(0.75, round_=0)
    event = event_of("heights=1", result)
    document = result.to_document()
    assert json.loads(event.body) == {
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
    assert event_of("heights=1.0", number(0.4)).id == first.id
    assert event_of("heights=100%", number(0.4)).id == first.id
    others = [
        event_of("heights=2", number(0.5)),
        event_of("heights=1", number(0.5), OTHER_STORE),
        event_of("heights=1", number(0.5, task=make_task({**_fields(HEIGHTS), "title": "another one"}))),
        event_of("way=2%", shares(0.01, 0.01, 0.01)),
        event_of("way:car=2%", shares(0.01, 0.01, 0.01)),
    ]
    assert len({first.id, *(one.id for one in others)}) == 1 + len(others)


def _fields(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(task.payload)
    return {name: found[name] for name in ("id", "epsilon", "domain")}


# Requests


def test_a_signature_is_that_of_the_standard(tmp_path: Path) -> None:
    """The example of the specification of Standard Webhooks, version 1.0.0."""
    hook = Webhook("https://hooks.example/", secret(tmp_path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    event = NotifyEvent("msg_p5jXN8AQM9LWM0D4loKWxJek", "heights", 0, b'{"test": 2432232314}')
    headers = hook.headers(event, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (event.id, "1614265330")


def test_a_signature_covers_id_time_and_body(tmp_path: Path) -> None:
    hook, event = Webhook("http://127.0.0.1:9/", secret(tmp_path)), NotifyEvent("msg_1", "heights", 0, b"{}")
    sent = hook.headers(event, 5)["webhook-signature"]
    assert sent == "v1," + base64.b64encode(hmac.digest(KEY, b"msg_1.5.{}", "sha256")).decode()
    changed = [
        hook.headers(event, 6),
        hook.headers(replace(event, id="msg_2"), 5),
        hook.headers(replace(event, body=b""), 5),
    ]
    assert sent not in {headers["webhook-signature"] for headers in changed}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://hooks.example/", "is not the address of a webhook"),
        ("receiver.example", "is not the address of a webhook"),
        ("https://?receiver", "is not the address of a webhook"),
        ("https://hooks.example:x/", "is not the address of a webhook"),
        ("https://h\N{LATIN SMALL LETTER O WITH DIAERESIS}ks.example/", "is not the address of a webhook"),
        ("https://hooks.example/a\r\nX: y", "is not the address of a webhook"),
        ("https://alice:pw@hooks.example/", "has a space, a # or a login"),
        ("https://hooks.example/#x", "has a space, a # or a login"),
        ("https://hooks.example/a b", "has a space, a # or a login"),
        ("http://hooks.example/", "use https://"),
        ("http://10.0.0.1/", "use https://"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_repeated(
    url: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=f"^--notify: .*{problem}") as caught:
        Webhook(url, secret(tmp_path))
    assert url not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost/x", "http://[::1]:8080/x", "http://127.0.0.1/x"])
def test_this_machine_needs_no_tls_and_no_address_is_printed_whole(url: str, tmp_path: Path) -> None:
    hook = Webhook(f"{url}?token=7", secret(tmp_path))
    assert str(hook) == url.removesuffix("x") + "…"


@pytest.mark.parametrize("text", ["secret\n", "whsec_!!!\n", "whsec_c2hvcnQ=\n", "\n", f"whsec_{'A' * 100}\n"])
def test_a_secret_that_is_none_is_refused_without_being_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match="the first line is not whsec_ and 24 to 64 bytes in base64; make one"
    ) as told:
        Webhook("https://hooks.example/", secret(tmp_path, text))
    assert text.strip()[6:] == "" or text.strip()[6:] not in str(told.value)


# The file


def test_the_file_has_what_waits_and_after_that_only_ids(tmp_path: Path) -> None:
    path = event_file(tmp_path / "hush.sqlite3")
    event = event_of("heights=1", number(0.5))
    events = EventFile(path)
    events.add(event)
    assert EventFile(path).waiting == [event]
    events.finish(event)
    again = EventFile(path)
    assert again.waiting == []
    assert event.id in again
    assert json.loads(path.read_bytes()) == {"v": 1, "done": [event.id], "waiting": []}  # and no time
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"v":1,"done":[],"waiting":[{"id":1}]}', b"\xff", b"null"])
def test_a_damaged_file_is_refused_with_what_follows_from_its_removal(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3.notify"
    path.write_bytes(content)
    with pytest.raises(OptionError, match="is damaged; remove it, after which events may be sent a second time"):
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

    def post(self, event: NotifyEvent) -> int:
        self.received.append((self.now(), event.id))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    now: Callable[[], float] = lambda: 0.0

    def started(self, *goals: str) -> Notifier:
        hook = Webhook("https://hooks.example/", secret(self.directory))
        events = EventFile(event_file(self.directory / "hush.sqlite3"))
        parsed = [PrecisionGoal.parse(goal) for goal in goals or ("heights=1",)]
        return Notifier(parsed, events, hook, STORE, post=self.post)

    def live(self, notifier: Notifier, *results: Result, seconds: float = 5.0) -> None:
        """Publish these, one a second; after some seconds of virtual time the process is gone."""

        async def run() -> None:
            self.now = asyncio.get_running_loop().time
            running = asyncio.create_task(notifier.run())
            for result in results:
                notifier.published(result)
                await asyncio.sleep(1)
            await asyncio.sleep(seconds)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(run())

    @property
    def ids(self) -> list[str]:
        return [name for _, name in self.received]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    async def at_once(call: Callable[[NotifyEvent], int], event: NotifyEvent) -> int:
        await asyncio.sleep(0)
        return call(event)

    monkeypatch.setattr(notify, "_in_daemon_thread", at_once)  # threads know no virtual time
    return World(tmp_path)


def test_each_round_is_reported_once_however_often_it_is_published(world: World) -> None:
    results = [number(2.0), number(0.9), number(0.8), number(0.7, round_=1), number(3.0), number(0.5)]
    daily = make_task({**_fields(HEIGHTS), "rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"})
    world.live(world.started(), *(replace(one, task=daily) for one in results))
    assert len(world.ids) == len(set(world.ids)) == 2


def test_nothing_is_sent_before_the_goal_is_reached_or_of_another_task(world: World) -> None:
    world.live(world.started(), number(1.5), shares(0.01, 0.01, 0.01))
    assert world.received == []


def test_an_accepted_event_is_never_sent_again_after_a_restart(world: World) -> None:
    world.live(world.started(), number(0.5))
    for _ in range(3):
        world.live(world.started(), number(0.5), number(0.4))
    assert len(world.ids) == 1


def test_a_receiver_that_fails_is_tried_again_less_and_less_often(world: World) -> None:
    world.answers = [500, ConnectionRefusedError(111, "Connection refused"), HTTPException(), 302, 404, 200]
    world.live(world.started(), number(0.5), seconds=200)
    times = [moment for moment, _ in world.received]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(set(world.ids)) == 1
    assert len(times) == 6
    assert all(doubled / 2 <= wait <= doubled for wait, doubled in zip(waits, (1, 2, 4, 8, 16), strict=True))


def test_attempts_go_on_for_ever_at_least_once_an_hour(world: World) -> None:
    world.answers = [503]
    world.live(world.started(), number(0.5), seconds=7 * 86400)
    assert 7 * 24 <= len(world.received) < 2 * 7 * 24 + 30


def test_an_event_that_was_not_accepted_is_sent_after_a_restart_even_if_the_estimate_has_changed(world: World) -> None:
    world.answers = [500]
    world.live(world.started(), number(0.5))
    world.answers = [200]
    world.live(world.started(), number(1.5))
    assert len(set(world.ids)) == 1
    before = len(world.ids)
    world.live(world.started(), number(0.5))
    assert len(world.ids) == before


def test_an_event_whose_answer_was_lost_comes_again_under_the_same_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(EventFile, "finish", _killed)
        world.live(world.started(), number(0.5))
    world.live(world.started())
    assert len(world.ids) == 2
    assert len(set(world.ids)) == 1
    world.live(world.started(), number(0.5))
    assert len(world.ids) == 2


def _killed(_events: EventFile, _event: NotifyEvent) -> None:
    raise asyncio.CancelledError  # the process ends here


def test_nothing_is_sent_that_could_not_be_written_before(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = OSError(28, "No space left on device")
    failing = [True]

    def replace_file(path: Path, content: bytes) -> None:
        if failing[0]:
            raise full
        files.replace_file(path, content)

    monkeypatch.setattr(notify, "replace_file", replace_file)
    notifier = world.started()
    world.live(notifier, number(0.5), seconds=60)
    assert world.received == []
    assert notifier.waiting == 1
    assert [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()] == [
        (
            "the events of --notify cannot be written (No space left on device): they are sent once they can be; "
            "free some space"
        )
    ]
    failing[0] = False
    world.live(world.started(), number(0.5))
    assert len(world.ids) == 1


def test_a_receiver_that_wants_no_more_gets_no_more(world: World) -> None:
    world.answers = [410]
    world.live(world.started(), number(0.5), seconds=600)
    assert len(world.received) == 1


def test_one_event_that_is_refused_does_not_hold_up_the_others(world: World) -> None:
    world.answers = [400, 400, 400, 200]
    world.live(world.started("heights=1", "heights=5"), number(3.0), number(0.5), seconds=30)
    assert len(set(world.ids)) == 2


def test_a_new_event_does_not_wait_for_the_next_attempt_of_an_old_one(world: World) -> None:
    world.answers = [503]
    notifier = world.started("heights=1", "heights=5")
    late = [number(3.0), *[number(3.0)] * 4000, number(0.5)]
    world.live(notifier, *late, seconds=60)
    (second,) = set(world.ids) - {world.ids[0]}
    assert next(moment for moment, name in world.received if name == second) - 4001 < 1


def test_a_goal_that_no_estimate_can_reach_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.live(world.started("heights=2%"), number(0.001), number(0.001))
    assert world.received == []
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told == [
        "--notify-precision heights=2%: task heights does not ask for a share; write the value in its unit, without %"
    ]


def test_every_line_that_follows_from_reports_waits_for_the_full_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.answers = [500, 200]
    world.live(world.started(), number(0.5))
    lines = [record for record in caplog.records if "event of task" in record.getMessage()]
    assert [record.getMessage().partition(", round 0, ")[2] for record in lines] == [
        "is not accepted (it answers 500); trying again until it is",
        "is accepted",
    ]
    assert all(record.hush_held for record in lines)  # type: ignore[attr-defined]


# Options


def test_the_options_belong_together(tmp_path: Path) -> None:
    path, file = tmp_path / "hush.sqlite3", secret(tmp_path)
    with SqliteStore(path) as store:
        assert notifier_of("", None, (), path, store) is None
        with pytest.raises(OptionError, match=r"--notify-secret-file: .* give its address with --notify"):
            notifier_of("", file, (), path, store)
        with pytest.raises(OptionError, match=r"--notify-precision: .* give its address with --notify"):
            notifier_of("", None, ["a=1"], path, store)
        with pytest.raises(OptionError, match=r"--notify: needs the secret"):
            notifier_of("https://hooks.example/", None, ["a=1"], path, store)
        with pytest.raises(OptionError, match=r"--notify: needs a precision"):
            notifier_of("https://hooks.example/", file, (), path, store)
        store.add_task(SMOKE)
        for goals, given in ((["smoke=2"], ()), (["heights=50"], (HEIGHTS,))):
            with pytest.raises(OptionError, match=r"without any report"):
                notifier_of("https://hooks.example/", file, goals, path, store, tasks=given)
        goals = ["smoke=2%", "heights=1", "a-task-that-comes-later=3"]
        assert notifier_of("https://hooks.example/", file, goals, path, store, tasks=(HEIGHTS,)) is not None
