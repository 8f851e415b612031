"""What Home Assistant is told: keys that it takes, templates that never fail, and when it is told and told no more."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from broker_world import DRAFT, HEIGHTS, World, frame, living
from hardened import Hardened, hush
from home_assistant import CATEGORIES, DEVICE, ENTITY_ID, ORIGIN, SENSOR, TOP, TOPIC, rendered, sensors
from made_results import result_of, single

from hush import Task
from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.commands.serve import ServeOptions
from hush_aggregator.estimate.result import encode
from hush_aggregator.publish.home_assistant import MOST_PARTS, Announcing, announcement
from hush_aggregator.store import SqliteEditor, TaskState
from hush_common.errors import OptionError
from hush_common.task import make_task
from hush_common.topics import estimate_topic, status_topic
from hush_common.wire import Refusal

STATUS = status_topic("aggregator")
CONFIG = "homeassistant/device/hush_heights/config"
LABELS = ["<script>alert(1)</script>", "{{ states('lock.door') }}", "{% raise %}", *(f"way {n}" for n in range(40))]


def task(domain: dict[str, Any], **more: Any) -> Task:  # noqa: ANN401 - fields of a draft
    return make_task({"id": "odd-name-1", "epsilon": "1", "title": LABELS[1] * 4, "domain": domain, **more})


TASKS = {
    "number": task({"kind": "number", "lower": 0.0, "upper": 9.0, "unit": "€/{{ 1 }}"}, enrolled=30),
    "bit": task({"kind": "bit"}),
    "categories": task({"kind": "category", "labels": LABELS}),
    "vector": task(
        {
            "kind": "vector",
            "coordinates": [{"name": f"c{n}", "lower": 0.0, "upper": 9.0, "unit": "kW"} for n in range(30)],
        }
    ),
}
INTERVALS = {"anytime": (0.125, 0.5), "reporters": (0.25, 0.375), "population": (0.0, 0.75)}


def live(kind: str) -> Mapping[str, object]:
    """A result with everything in it."""
    one = TASKS[kind]
    estimate = single(9, 0.3125, stderr={"reporters": 0.125}, intervals=INTERVALS)
    if kind == "categories":
        parts = [PartEstimate(n=9, name=label, mean=0.3125, joint_intervals=INTERVALS) for label in LABELS]
        estimate = Estimate(9, parts=tuple(parts))
    elif kind == "vector":
        drawn = [PartEstimate(name=f"c{n}", n=9, mean=0.3125, intervals=INTERVALS) for n in range(20)]
        estimate = Estimate(9, parts=(*drawn, PartEstimate(name="c20")))
    return result_of(one, estimate, refused={Refusal.CLOSED: 2, Refusal.QUOTA: 3}).to_document()


@pytest.mark.parametrize("kind", TASKS)
def test_an_announcement_has_the_keys_that_home_assistant_takes(kind: str) -> None:
    document: Any = json.loads(encode(announcement(TASKS[kind], STATUS)))
    assert {"device", "components", "origin"} <= document.keys() <= TOP
    assert document["device"].keys() <= DEVICE
    assert document["device"]["identifiers"]
    assert "name" in document["origin"].keys() <= ORIGIN
    found = sensors(document)
    for sensor in found.values():
        assert sensor.keys() <= SENSOR
        assert "suggested_display_precision" not in sensor  # it would replace the digits of the state
        assert sensor["platform"] == "sensor"
        assert sensor["state_topic"] == estimate_topic("odd-name-1")
        assert sensor["availability_topic"] == STATUS
        assert sensor.get("state_class") == "measurement"
        assert sensor.get("entity_category", "config") in CATEGORIES
        assert str(sensor.get("unit_of_measurement", "x")).strip()
        assert ENTITY_ID.fullmatch(str(sensor["default_entity_id"]))
    for name in ("unique_id", "default_entity_id"):
        assert len({str(sensor[name]) for sensor in found.values()}) == len(found)
    assert len(found) <= 3 * MOST_PARTS + 2


def test_a_device_has_the_version_and_a_link_to_its_page_if_there_is_one() -> None:
    pages = ("", "https://hush.example/a")
    bare, linked = (json.loads(encode(announcement(TASKS["bit"], STATUS, page)))["device"] for page in pages)
    assert bare["sw_version"] == version("hush-ldp")
    assert "configuration_url" not in bare
    assert linked["configuration_url"] == "https://hush.example/a/tasks/odd-name-1"


@pytest.mark.parametrize("kind", TASKS)
def test_no_text_of_a_task_is_anything_but_a_name_or_a_unit(kind: str) -> None:
    document: Any = json.loads(encode(announcement(TASKS[kind], STATUS)))
    for sensor in document["components"].values():
        sensor.pop("name")
        sensor.pop("unit_of_measurement", None)
    document["device"].pop("name")
    rest = json.dumps(document)
    assert not [text for text in ("script", "states(", "raise", "{{ 1 }}", "kW") if text in rest]


# What its sensors show


def states(kind: str, payload: bytes, *keys: str) -> dict[str, str]:
    """What these sensors show, or all."""
    found = sensors(announcement(TASKS[kind], STATUS))
    return {key: rendered(str(found[key]["value_template"]), payload) for key in keys or found}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "number",
            {
                "mean": "0.31",
                "anytime_lower": "0.12",
                "reporters_upper": "0.38",
                "enrolled_upper": "None",
                "refused": "5",
            },
        ),
        ("bit", {"mean": "31", "anytime_upper": "50"}),
        ("categories", {"share_0": "31.2", "share_19_lower": "12.5"}),
        ("vector", {"mean_19": "0.3", "mean_0_upper": "0.5", "reports": "9"}),
    ],
)
def test_a_sensor_shows_the_figure_of_the_document(kind: str, expected: dict[str, str]) -> None:
    assert states(kind, encode(live(kind)), *expected) == expected


NOTHING: dict[str, Callable[[str], bytes]] = {
    "no report": lambda kind: encode(result_of(TASKS[kind], Estimate(0)).to_document()),
    "failed": lambda kind: encode(result_of(TASKS[kind], Estimate(9, failures={"estimate": "slow"})).to_document()),
    "cleared": lambda _: b"",
    "no JSON": lambda _: b"x",
    "null": lambda _: b"null",
    "a list": lambda _: b"[1, 2]",
    "a text": lambda _: b'"mean"',
    "nothing in it": lambda _: b"{}",
    "nulls": lambda _: b'{"mean": null, "intervals": null, "categories": null, "coordinates": null, "refused": null}',
    "texts": lambda _: b'{"mean": "x", "n": "7", "intervals": "xy", "categories": "xy", "coordinates": {}}',
    "odd intervals": lambda _: b'{"intervals": {"anytime": "ab", "reporters": [1], "population": 3, "enrolled": {}}}',
    "odd errors": lambda _: b'{"stderr": {"reporters": "x", "population": null}, "categories": [{"stderr": [1]}]}',
    "odd parts": lambda _: b'{"categories": [3, null, {}], "coordinates": [{"intervals": 3}, {"intervals": {}}]}',
}


@pytest.mark.medium
@pytest.mark.parametrize("kind", TASKS)
def test_where_there_is_no_figure_it_is_unknown_without_a_warning(kind: str) -> None:
    found = sensors(announcement(TASKS[kind], STATUS))
    some = [key for key in [*found][:8] + [*found][-4:] if key not in {"reports", "refused"}]
    for payload in NOTHING.values():
        assert {*states(kind, payload(kind), *some).values()} == {"None"}


def test_attributes_are_a_small_object_of_json_whatever_comes() -> None:
    found = sensors(announcement(TASKS["number"], STATUS)).values()
    (sensor,) = (one for one in found if "json_attributes_topic" in one)
    for payload in [*(made("number") for made in NOTHING.values()), encode(live("number"))]:
        shown = rendered(str(sensor["json_attributes_template"]), payload)
        assert json.loads(shown).keys() >= {"round", "refused", "final"}
        assert len(shown) < 1000


# When


def announcing(world: World, prefix: str = "homeassistant") -> Announcing:
    return Announcing(prefix, STATUS, world.store.public_identity)


def retained(world: World, topic: str = CONFIG) -> Any:  # noqa: ANN401 - JSON
    return json.loads(world.broker.retained[topic]) if topic in world.broker.retained else None


def change(world: World, state: TaskState) -> None:
    """As a command does."""
    with SqliteEditor(world.path) as command:
        if state is TaskState.CLOSED:
            command.close_task("heights", None)
        else:
            command.set_state("heights", state)


def test_a_task_is_announced_while_it_is_open_and_no_longer(tmp_path: Path) -> None:
    with living(tmp_path / "hush.sqlite") as world:
        world.serve(announcing=announcing(world))
        assert retained(world)["device"]["identifiers"] == ["hush_heights"]
        assert TOPIC.fullmatch(CONFIG.removeprefix("homeassistant/"))
        world.send(frame())
        change(world, TaskState.WITHDRAWN)
        world.wait(5)
        assert retained(world) is None
        change(world, TaskState.OPEN)
        world.wait(5)
        assert retained(world) is not None
        change(world, TaskState.CLOSED)
        world.wait(5)
        assert retained(world) is None


def test_a_task_forgotten_between_runs_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    with living(tmp_path / "hush.sqlite") as world:
        world.serve(announcing=announcing(world))
        world.stop()
        assert retained(world) is not None  # what is there stays while nobody is connected: it is unavailable
        with SqliteEditor(world.path) as command:
            command.forget("heights")
        world.task = make_task(DRAFT | {"id": "other"})
        world.serve(announcing=announcing(world))
        assert retained(world) is None
        assert retained(world, "homeassistant/device/hush_other/config") is not None


def test_a_birth_message_is_answered_after_a_while_and_nothing_else(tmp_path: Path) -> None:
    with living(tmp_path / "hush.sqlite") as world:
        world.serve(announcing=announcing(world, "home_2"))
        topic = CONFIG.replace("homeassistant", "home_2")
        assert retained(world, topic) is not None
        for words in (b"offline", b"", b"online?"):
            world.broker.retained.pop(topic, None)
            world.broker.deliver("home_2/status", words)
            world.wait(15)
            assert retained(world, topic) is None
        world.broker.deliver("home_2/status", b"online")
        world.wait(0.001)
        assert retained(world, topic) is None
        world.wait(12)
        assert retained(world, topic) is not None
        assert world.store.refusals("heights") == {}


def test_what_another_store_publishes_is_neither_announced_nor_cleared(tmp_path: Path) -> None:
    with living(tmp_path / "hush.sqlite") as world:
        others = {"store": "f" * 32, "term": 3, "digest": HEIGHTS.digest.hex(), "n": 10}
        world.broker.retained[estimate_topic("heights")] = json.dumps(others).encode()
        world.broker.retained[CONFIG] = b'{"theirs": 1}'
        world.serve(announcing=announcing(world))
        change(world, TaskState.WITHDRAWN)
        world.wait(10)
        assert retained(world) == {"theirs": 1}


def test_a_broker_that_forgot_it_has_it_again_after_the_next_connection(tmp_path: Path) -> None:
    with living(tmp_path / "hush.sqlite") as world:
        world.serve(announcing=announcing(world))
        world.broker.kill()
        world.wait(20)
        assert retained(world) is not None


@pytest.mark.parametrize("prefix", ["", "a/b", "+", "#", "a b", "ä", "x" * 65])
def test_a_prefix_that_is_not_a_level_of_a_topic_is_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="home_assistant"):
        ServeOptions(broker="mqtt://x", store=str(tmp_path / "s"), home_assistant=True, home_assistant_prefix=prefix)


# On a real mosquitto with the rules that `hush broker` writes

USERS = {"serve": "announcer", "home": "home-assistant", "kitchen": "device"}
TOML = 'id = "heights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    with Hardened(tmp_path_factory.mktemp("hardened") / "broker", USERS).running() as hardened:
        yield hardened


@pytest.fixture
def serve(broker: Hardened, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (tmp_path / "task.toml").write_text(TOML, encoding="utf-8")
    command = [sys.executable, "-m", "hush", "serve", *broker.login("serve"), "--home-assistant"]
    command += ["--store", str(tmp_path / "store"), "--task", str(tmp_path / "task.toml")]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        yield process
        process.kill()


async def came(home: aiomqtt.Client, topic: str) -> bytes:
    """The next message on a topic."""
    async with asyncio.timeout(60):
        async for message in home.messages:
            if str(message.topic) == topic:
                assert isinstance(message.payload, bytes)
                return message.payload
    raise AssertionError


@pytest.mark.large
@pytest.mark.usefixtures("serve")
async def test_the_user_of_home_assistant_sees_a_task_come_and_go(broker: Hardened, tmp_path: Path) -> None:
    async with broker.client("home") as home:
        await home.subscribe("homeassistant/#")
        announced = json.loads(await came(home, CONFIG))
        assert announced["state_topic"] == "hush/v1/estimates/heights"
        assert announced["availability_topic"] == STATUS
        await home.subscribe(announced["state_topic"])
        assert json.loads(await came(home, announced["state_topic"]))["n"] == 0
        await home.subscribe(announced["availability_topic"])
        assert await came(home, STATUS) == b"online"
        withdrawn = await asyncio.to_thread(hush, "task", "withdraw", "heights", "--store", str(tmp_path / "store"))
        assert withdrawn.returncode == 0
        assert await came(home, CONFIG) == b""


@pytest.mark.large  # it waits for a random moment within ten seconds
async def test_the_user_of_home_assistant_sees_that_nobody_serves(
    broker: Hardened, serve: "subprocess.Popen[bytes]"
) -> None:
    async with broker.client("home") as home, broker.client("kitchen") as kitchen:
        await home.subscribe([("homeassistant/#", 0), ("hush/v1/status/+", 0)])
        first = await came(home, CONFIG)
        await kitchen.publish("homeassistant/device/hush_heights/config", b"", retain=True, qos=1)  # is not let
        await home.publish("homeassistant/status", b"online")
        assert await came(home, CONFIG) == first
        serve.send_signal(signal.SIGKILL)
        while await came(home, STATUS) != b"offline":
            pass
