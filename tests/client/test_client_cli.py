"""`hush report`, `hush sync` and `hush ledger`: how values are read, one line, an exit code, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import aiomqtt
import pytest
from commands import run
from heights import make_heights
from scripted_broker import ScriptedBroker
from servers import Mosquitto, need
from terminal import at_terminal

from hush_client import SyncClient
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.task import make_task
from hush_common.topics import ALL_REPORTS, report_topic, task_topic

HUSH = Path(sys.executable).with_name("hush")


class Hush(Protocol):
    def __call__(self, *arguments: str, typed: str | bytes = "") -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
async def tasks(mosquitto: Mosquitto) -> None:
    """A few tasks on the broker, and a session that waits for reports."""
    daily = {"rounds": 100_000, "round_every": "1d", "opens": "2020-01-01T00:00:00Z", "repeat": "sticky"}
    axes = [{"name": name, "lower": -1.0, "upper": 1.0} for name in ("x", "y")]
    documents: list[dict[str, object]] = [
        {"id": "choice", "epsilon": "2", "offers": ["0.5", "2"], "domain": {"kind": "bit"}},
        {"id": "colour", "epsilon": "1", "domain": {"kind": "category", "labels": ["red", "light blue"]}},
        {"id": "move", "epsilon": "1", "purpose": "moving", "domain": {"kind": "vector", "coordinates": axes}},
        {"id": "smoker", "epsilon": "1", "purpose": "health", "domain": {"kind": "bit"}},
        {"id": "habit", "epsilon": "1", "purpose": "habits", "domain": {"kind": "bit"}, **daily},
    ]
    kept = aiomqtt.Client("127.0.0.1", mosquitto.port, identifier="aggregator", clean_session=False)
    async with kept as administrator:
        await administrator.subscribe(ALL_REPORTS, qos=1)
        for payload in (make_heights(), *(make_task(document).payload for document in documents)):
            name = json.loads(payload)["id"]
            await administrator.publish(task_topic(name), payload, qos=1, retain=True)


@pytest.fixture
def hush(tasks: None, mosquitto: Mosquitto, tmp_path: Path) -> Hush:  # noqa: ARG001 - they are published first
    """The command with a separate state, in this process: starting one takes longer than most answers."""

    def call(*arguments: str, typed: str | bytes = "") -> subprocess.CompletedProcess[str]:
        shown = run(
            command(arguments)[1:],
            tmp_path,
            typed=typed if isinstance(typed, bytes) else typed.encode(),
            environment=environment(mosquitto, tmp_path),
            patience=240,
        )
        assert shown.trouble == ""
        assert shown.code is not None
        return subprocess.CompletedProcess(arguments, shown.code, shown.out, shown.err)

    return call


def command(arguments: tuple[str, ...]) -> list[str]:
    at_once = ("--spread", "0") if arguments[0] == "report" else ()
    return [str(HUSH), arguments[0], *at_once, *arguments[1:]]


def environment(mosquitto: Mosquitto, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HUSH_BROKER": mosquitto.url}


def assert_one_line(text: str, *words: str) -> None:
    assert len(text.strip().splitlines()) == 1, text
    for word in words:
        assert word in text


@pytest.mark.medium
@pytest.mark.face
def test_an_answer_is_sent_once_and_told_in_plain_words(hush: Hush) -> None:
    first, second = hush("report", "heights", "172.5"), hush("report", "heights", "172.5")
    assert (first.returncode, second.returncode) == (0, 0)
    assert_one_line(first.stdout, "heights, round 0: sent", "cost epsilon 1", "epsilon 1 of 4")
    assert_one_line(second.stdout, "answered before", "epsilon 1 of 4")
    assert first.stderr == second.stderr == ""


@pytest.mark.medium
def test_whatever_the_value_is_the_command_ends_and_says_the_same(hush: Hush) -> None:
    argued = [hush("report", "heights", value, "--device", f"a{value}"[:2]) for value in ("172.5", "999", "", "twelve")]
    typed = [
        hush("report", "heights", "-", "--device", f"b{number}", typed=value)
        for number, value in enumerate([b"172.5\n", b"-inf\n", b"nan\n", b"", b"\xff\xfe\n", b"1" * 3_000_000])
    ]
    for done in argued + typed:
        assert (done.returncode, done.stderr) == (0, "")
    assert len({done.stdout for done in argued + typed}) == 1
    assert {account["spent"] for account in json.loads(hush("ledger", "--json").stdout)["accounts"]} == {"1"}


@pytest.mark.medium
def test_a_receipt_can_be_had_as_json(hush: Hush) -> None:
    sent = json.loads(hush("report", "heights", "172", "--json").stdout)
    assert len(sent.pop("report_id")) == 32
    assert sent == {
        "v": 1,
        "status": "sent",
        "task": "heights",
        "round": 0,
        "epsilon": "1",
        "spent": "1",
        "cap": "4",
        "can_refuse": True,
    }
    refused = hush("report", "smoker", "yes", "--lifetime", "0.5", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["reason"] == "over_budget"


@pytest.mark.medium
@pytest.mark.face
def test_without_a_broker_only_a_stored_task_is_answered(hush: Hush, mosquitto: Mosquitto) -> None:
    assert hush("report", "heights", "172", "--device", "a").returncode == 0
    mosquitto.stop()
    stored, again, other = (
        hush("report", name, "172", "--device", device, "--timeout", "1")
        for name, device in (("heights", "b"), ("heights", "a"), ("smoker", "a"))
    )
    assert (stored.returncode, stored.stderr, again.returncode, again.stderr) == (0, "", 0, "")
    assert_one_line(stored.stdout, "not yet sent", "mqtt://")
    assert_one_line(again.stdout, "answered before")
    assert "waits" not in again.stdout
    repeated = hush("report", "heights", "172", "--device", "b", "--timeout", "1")
    assert_one_line(repeated.stdout, "answered before", "waits", "mqtt://")
    assert other.returncode == 1
    assert_one_line(other.stderr, "'smoker'")
    receipt = json.loads(hush("report", "heights", "172", "--device", "c", "--timeout", "1", "--json").stdout)
    assert (receipt["status"], receipt["offline"]) == ("queued", True)
    mosquitto.start()
    assert_one_line(hush("report", "smoker", "yes", "--device", "a").stdout, "smoker, round 0: sent")
    read = [need("mosquitto_sub"), "-p", str(mosquitto.port), "-i", "aggregator", "-c", "-q", "1", "-t", ALL_REPORTS]
    told = subprocess.run([*read, "-C", "4", "-F", "%t", "-W", "60"], capture_output=True, text=True, check=True)
    topics = told.stdout
    assert sorted(topics.split()) == [
        *(report_topic("heights", device) for device in "abc"),
        report_topic("smoker", "a"),
    ], "what waited went with it"


@pytest.mark.medium
@pytest.mark.face
def test_two_processes_at_once_make_one_answer(hush: Hush, mosquitto: Mosquitto, tmp_path: Path) -> None:
    hush("ledger")
    arguments = ("report", "heights", "172", "--device", "d", "--json")
    called, pipe, around = [str(HUSH), *arguments], subprocess.PIPE, environment(mosquitto, tmp_path)
    children = [subprocess.Popen(called, stdout=pipe, stderr=pipe, env=around, text=True) for _ in range(3)]
    receipts = []
    for child in children:
        said, complained = child.communicate(timeout=60)
        if child.returncode:  # a busy machine may let one wait for its turn in vain: it may try again
            assert_one_line(complained, "another client")
            said = hush(*arguments).stdout
        receipts.append(json.loads(said))
    assert sorted(receipt["status"] for receipt in receipts) == ["already_answered", "already_answered", "sent"]
    assert len({receipt["report_id"] for receipt in receipts}) == 1


@pytest.mark.medium
def test_a_sync_under_another_name_says_what_it_leaves_alone(hush: Hush) -> None:
    assert hush("report", "heights", "172", "--device", "a").returncode == 0
    right = hush("sync", "--device", "a")
    assert "check" not in right.stdout
    assert right.stderr.startswith("hush: used the state")
    wrong = hush("sync", "--device", "b")
    assert_one_line(wrong.stdout, "1 kept for another", "--device")
    assert json.loads(hush("sync", "--device", "b", "--json").stdout)["elsewhere"] == 1


NUMBER = NumberDomain(-10.0, 10.0)
COLOURS = CategoryDomain(("red", "green", "light blue", "1"))
BODY = VectorDomain((Coordinate(0.0, 1.0, name="height"), Coordinate(-5.0, 5.0, name="weight")))


@pytest.mark.parametrize(
    ("domain", "text", "value"),
    [
        (NUMBER, "-1.5e0", -1.5),
        (BitDomain(), "Yes", True),
        (BitDomain(), "0", False),
        (COLOURS, "light blue", "light blue"),
        (COLOURS, "1", "1"),
        (BODY, "0.5,-3", [0.5, -3.0]),
        (BODY, " 1 , 2 ", [1.0, 2.0]),
    ],
)
def test_a_value_is_read_and_admitted(domain: Domain, text: str, value: object) -> None:
    assert domain.parse(text) == value
    assert domain.check(value) == "used"


@pytest.mark.parametrize(
    ("domain", "texts"),
    [
        (NUMBER, ["1,5", "nan", "1" * 101, ""]),
        (BitDomain(), ["maybe"]),
        (COLOURS, ["Red", ""]),
        (BODY, ["1", "1,2,3", "1,", "1,nan"]),
    ],
)
def test_a_text_that_is_not_a_value_is_replaced(domain: Domain, texts: list[str]) -> None:
    assert {domain.check(domain.parse(text)) for text in texts} == {"replaced"}


def test_a_number_beyond_all_floats_is_moved_to_the_bound() -> None:
    for text, end in (("inf", 1 << 20), ("-Infinity", 0), ("1e999999999", 1 << 20), ("-9e999", 0)):
        reading = NUMBER.read(NUMBER.parse(text))
        assert (reading.parts, reading.coercion) == ((end,), "moved")


def test_a_hint_names_a_few_of_many_labels() -> None:
    many = CategoryDomain(tuple(f"l{place}" for place in range(1000))).typing_hint
    assert "l5" in many
    assert "l6" not in many
    assert BODY.typing_hint.endswith("height, weight")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("task", "value", "piped", "words"),
    [
        ("heights", "twelve", False, ["120", "220"]),
        ("smoker", "maybe", True, ["yes, no"]),
        ("move", "1,oops", True, ["VALUE", "x, y"]),
    ],
)
def test_a_typing_error_spends_nothing_and_is_not_quoted(
    hush: Hush, mosquitto: Mosquitto, tmp_path: Path, task: str, value: str, *, piped: bool, words: list[str]
) -> None:
    arguments = command(("report", task, "-" if piped else value))
    around = environment(mosquitto, tmp_path)
    code, shown = at_terminal(arguments, tmp_path, environment=around, typed=f"{value}\n" if piped else "")
    assert code == 2
    told = shown.partition("hush:")[2]  # before it is the terminal's own echo of the keys
    assert all(word in told for word in words)
    assert value not in told
    assert "nothing" in hush("ledger").stdout


@pytest.mark.medium
@pytest.mark.usefixtures("tasks")
def test_a_terminal_shows_how_a_value_was_used_but_not_it(mosquitto: Mosquitto, tmp_path: Path) -> None:
    arguments = command(("report", "heights", "998.25"))
    code, shown = at_terminal(arguments, tmp_path, environment=environment(mosquitto, tmp_path), typed="")
    assert code == 0
    assert "moved" in shown
    assert "998.25" not in shown


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "allowed", "cost"),
    [
        (("heights", "172", "--lifetime", "0.5"), False, "1"),
        (("heights", "172", "--max-epsilon", "0.5"), False, "1"),
        (("heights", "172", "--total", "0.5"), False, "1"),
        (("habit", "yes"), False, "1"),
        (("habit", "yes", "--sticky"), True, "1"),
        (("choice", "yes"), True, "2"),
        (("choice", "yes", "--epsilon", "0.5"), True, "0.5"),
        (("colour", "light blue"), True, "1"),
        (("move", "-0.5,2"), True, "1"),
    ],
)
def test_the_options_limit_what_an_answer_costs(
    hush: Hush, arguments: tuple[str, ...], *, allowed: bool, cost: str
) -> None:
    done = hush("report", *arguments)
    assert done.returncode == (0 if allowed else 1)
    assert_one_line(done.stdout if allowed else done.stderr, f"epsilon {cost}", "sent" if allowed else "refused")
    spent = [account["spent"] for account in json.loads(hush("ledger", "--json").stdout)["accounts"]]
    assert spent == ([cost] if allowed else [])


@pytest.mark.medium
def test_a_pin_with_charges_and_an_epsilon_not_offered_are_wrong_usages(hush: Hush) -> None:
    assert hush("report", "choice", "yes").returncode == 0
    for arguments, words in (
        (("ledger", "--forget", "choice"), ("--forget", "'choice'")),
        (("report", "choice", "yes", "--device", "other", "--epsilon", "1"), ("0.5", "2")),
    ):
        done = hush(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert_one_line(done.stderr, *words)


@pytest.mark.medium
def test_a_second_sender_is_refused_but_reads_the_ledger(hush: Hush, tmp_path: Path) -> None:
    with SyncClient("mqtt://h", device="d", state=tmp_path / "hush", transport=ScriptedBroker()):
        done = hush("report", "heights", "172")
        assert (done.returncode, done.stdout) == (1, "")
        assert_one_line(done.stderr, str(tmp_path / "hush"), "another client")
        assert "nothing" in hush("ledger").stdout
    assert hush("report", "heights", "172").returncode == 0


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope", "1", "--timeout", "1"), ["'nope'"]),
        (("heights", "1", "--broker", "mqtt://127.0.0.1:1", "--timeout", "1"), ["mqtt://127.0.0.1:1"]),
        (("heights", "1", "--state", "/dev/null"), ["/dev/null"]),
    ],
)
def test_a_failed_report_ends_in_one_line(hush: Hush, arguments: tuple[str, ...], words: list[str]) -> None:
    done = hush("report", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr, "hush: ", *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("heights",), ["VALUE"]),
        (("Nope", "1"), ["TASK"]),
        (("heights", "1", "--device", "a/b"), ["a/b"]),
        (("heights", "1", "--brokr", "x"), ["--help"]),
        (("heights", "1", "--timeout", "nan"), ["--timeout", "nan"]),
        (("heights", "1", "--timeout", "inf"), ["--timeout", "inf"]),
        (("heights", "1", "--spread", "nan"), ["--spread", "nan"]),
        (("heights", "1", "--lifetime", "0"), ["--lifetime"]),
        (("heights", "1", "--max-epsilon", "nan"), ["nan"]),
    ],
)
def test_a_wrong_usage_names_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], words: list[str]) -> None:
    shown = run(["report", *arguments, "--broker", "mqtt://127.0.0.1:1", "--state", str(tmp_path / "s")], tmp_path)
    assert (shown.code, shown.out, shown.trouble) == (2, "", "")
    assert all(word in shown.err for word in words), shown.err
    assert not (tmp_path / "s").exists()


def test_a_damaged_state_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "hush.sqlite3").write_text("no database at all" * 100)
    shown = run(["ledger", "--state", str(tmp_path)], tmp_path)
    assert (shown.code, shown.out) == (1, "")
    assert_one_line(shown.err, "hush.sqlite3", "docs/device.md")
