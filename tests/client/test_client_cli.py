"""`hush report` and `hush ledger` as a person meets them: one line, an exit code, never a traceback."""

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

import aiomqtt
import pytest
from commands import run
from heights import make_heights
from servers import Mosquitto, need
from terminal import at_terminal

from hush_client.sending.schedule import milliseconds, utc_now
from hush_client.state import outbox
from hush_client.state.database import DeviceState, Lock
from hush_common.task import make_task
from hush_common.topics import ALL_REPORTS, report_topic, task_topic

HUSH = Path(sys.executable).with_name("hush")


class Hush(Protocol):
    def __call__(self, *arguments: str, typed: str | bytes = "") -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
async def tasks(mosquitto: Mosquitto) -> None:
    """A few tasks on the broker, and a session that waits for reports."""
    choice = {"id": "choice", "epsilon": "2", "offers": ["0.5", "2"], "purpose": "choice", "domain": {"kind": "bit"}}
    colour = {"id": "colour", "epsilon": "1", "domain": {"kind": "category", "labels": ["red", "light blue"]}}
    axes = [{"name": name, "lower": -1.0, "upper": 1.0} for name in ("x", "y")]
    move = {"id": "move", "epsilon": "1", "purpose": "moving", "domain": {"kind": "vector", "coordinates": axes}}
    smoker = {"id": "smoker", "epsilon": "1", "purpose": "health", "domain": {"kind": "bit"}}
    daily = {"rounds": 100_000, "round_every": "1d", "opens": "2020-01-01T00:00:00Z", "repeat": "sticky"}
    habit = {"id": "habit", "epsilon": "1", "purpose": "habits", "domain": {"kind": "bit"}} | daily
    scale = {"kind": "number", "lower": -0.5, "upper": 1500, "unit": "kg"}
    weight = {"id": "weight", "epsilon": "1", "purpose": "health", "domain": scale}
    kept = aiomqtt.Client("127.0.0.1", mosquitto.port, identifier="aggregator", clean_session=False)
    async with kept as administrator:
        await administrator.subscribe(ALL_REPORTS, qos=1)
        await administrator.publish(task_topic("heights"), make_heights(), qos=1, retain=True)
        for document in (smoker, choice, colour, move, habit, weight):
            task = make_task(document)
            await administrator.publish(task_topic(task.id), task.payload, qos=1, retain=True)


@pytest.fixture
def hush(tasks: None, mosquitto: Mosquitto, tmp_path: Path) -> Hush:  # noqa: ARG001 - likewise
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


@pytest.fixture
def process(tasks: None, mosquitto: Mosquitto, tmp_path: Path) -> Hush:  # noqa: ARG001 - likewise
    """The installed command, as a process."""

    def call(*arguments: str, typed: str | bytes = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(arguments),
            input=typed if isinstance(typed, bytes) else typed.encode(),
            capture_output=True,
            check=False,
            env=environment(mosquitto, tmp_path),
            timeout=60,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def command(arguments: tuple[str, ...]) -> list[str]:
    at_once = ("--spread", "0") if arguments[0] == "report" else ()
    return [str(HUSH), arguments[0], *at_once, *arguments[1:]]


def environment(mosquitto: Mosquitto, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HUSH_BROKER": mosquitto.url}


@pytest.fixture
def terminal(tasks: None, mosquitto: Mosquitto, tmp_path: Path) -> Hush:  # noqa: ARG001 - tasks are on the broker
    """The same, where a person sits: all that is shown stands in `stdout`."""

    def run(*arguments: str, typed: str | bytes = "") -> subprocess.CompletedProcess[str]:
        keys = typed if isinstance(typed, str) else typed.decode()
        code, shown = at_terminal(
            command(arguments), tmp_path, environment=environment(mosquitto, tmp_path), typed=keys
        )
        return subprocess.CompletedProcess(arguments, code, shown, "")

    return run


def assert_one_line(text: str, *words: str) -> None:
    assert len(text.strip().splitlines()) == 1, text
    for word in words:
        assert word in text


@pytest.mark.medium
def test_an_answer_is_sent_once_and_told_in_plain_words(process: Hush) -> None:
    first, second = process("report", "heights", "172.5"), process("report", "heights", "172.5")
    assert (first.returncode, second.returncode) == (0, 0)
    assert_one_line(first.stdout, "heights, round 0: sent", "cost epsilon 1", "epsilon 1 of 4")
    assert_one_line(second.stdout, "answered before", "epsilon 1 of 4")
    assert first.stderr == second.stderr == ""


@pytest.mark.medium
def test_a_value_may_be_typed_where_no_list_of_processes_shows_it(hush: Hush) -> None:
    assert "sent" in hush("report", "heights", "-", typed="172.5\n").stdout


@pytest.mark.medium
@pytest.mark.parametrize("value", ["yes", "No", "true", "FALSE", "1", "0"])
def test_a_bit_may_be_written_in_words(hush: Hush, value: str) -> None:
    assert hush("report", "smoker", value).returncode == 0


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


@pytest.mark.large
@pytest.mark.parametrize(
    ("task", "value", "piped", "words"),
    [
        ("heights", "twelve", False, "from 120 to 220\r\n"),
        ("weight", "yes", True, "from -0.5 to 1500 kg\r\n"),
        ("smoker", "maybe", True, "yes, no"),
        ("colour", "blue", False, "red, light blue"),
        ("move", "1,oops", True, "VALUE: it is not 2 numbers; write x, y"),
    ],
)
def test_a_typing_error_spends_nothing_and_is_not_quoted(
    hush: Hush, terminal: Hush, task: str, value: str, *, piped: bool, words: str
) -> None:
    done = terminal("report", task, "-", typed=f"{value}\n") if piped else terminal("report", task, value)
    assert done.returncode == 2
    assert words in done.stdout
    told = done.stdout.partition("hush:")[2]  # what stands before is the terminal's own echo of the keys
    assert value not in told.replace("light blue", "")
    assert "nothing" in hush("ledger").stdout


@pytest.mark.medium
def test_a_terminal_shows_how_a_value_was_used_but_not_the_value(terminal: Hush) -> None:
    done = terminal("report", "heights", "998.25")
    assert done.returncode == 0
    assert "moved inside" in done.stdout
    assert "998.25" not in done.stdout
    assert "told" not in terminal("report", "heights", "172.5", "--device", "other").stdout


@pytest.mark.medium
@pytest.mark.parametrize("option", ["--lifetime", "--max-epsilon"])
def test_an_answer_above_the_limits_is_refused(hush: Hush, option: str) -> None:
    done = hush("report", "heights", "172", option, "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr, "hush: heights: refused", "epsilon 1", "nothing was spent")
    assert "nothing" in hush("ledger").stdout


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
def test_the_ledger_lists_every_charge_and_says_what_it_means(hush: Hush) -> None:
    hush("report", "heights", "172", "--device", "d")
    hush("report", "smoker", "yes", "--device", "d")
    text = hush("ledger").stdout
    assert "d, for workplaces: epsilon 1 of 4" in text
    assert "smoker 0 1 randomized_response 0" in " ".join(text.split())
    assert "at most 88.1 % sure" in text  # epsilon 2 in total
    document = json.loads(hush("ledger", "--json").stdout)
    assert document["waiting"] == 0
    assert [(account["purpose"], account["spent"]) for account in document["accounts"]] == [
        ("health", "1"),
        ("workplaces", "1"),
    ]
    assert [len(account["charges"]) for account in document["accounts"]] == [1, 1]


@pytest.mark.medium
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
async def test_a_second_sender_is_refused_but_reads_the_ledger(process: Hush, tmp_path: Path) -> None:
    lock = await Lock.acquire(tmp_path / "hush")
    done = await asyncio.to_thread(process, "report", "heights", "172")
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr, str(tmp_path / "hush"), "another client")
    assert "nothing" in (await asyncio.to_thread(process, "ledger")).stdout
    lock.release()
    assert (await asyncio.to_thread(process, "report", "heights", "172")).returncode == 0


@pytest.mark.medium
async def test_what_an_earlier_call_could_not_send_goes_with_the_next_one(process: Hush, tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path / "hush")
    soon = milliseconds(utc_now()) + 1500
    await state.run(partial(outbox.put, topic="hush/v1/reports/heights/d", payload=b"{}", not_before=soon, delay=1500))
    await state.close()
    assert (await asyncio.to_thread(process, "report", "heights", "172")).returncode == 0
    assert json.loads((await asyncio.to_thread(process, "ledger", "--json")).stdout)["waiting"] == 0


@pytest.mark.medium
def test_a_pinned_task_is_forgotten_only_where_nothing_was_charged(hush: Hush) -> None:
    hush("report", "heights", "172")
    refused = hush("ledger", "--forget", "heights")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert_one_line(refused.stderr, "--forget", "'heights'")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nope", "1", "--timeout", "1"), 1, "no task 'nope' on this broker"),
        (("Nope", "1"), 2, "TASK"),
        (("heights", "1", "--broker", "localhost"), 1, "mqtt://localhost:1883"),
        (("heights", "1", "--broker", "mqtt://127.0.0.1:1", "--timeout", "1"), 1, "Connection refused"),
        (("heights", "1", "--state", "/dev/null"), 1, "/dev/null"),
        (("heights", "1", "--lifetime", "0"), 2, "--lifetime"),
        (("heights", "1", "--max-epsilon", "nan"), 2, "'nan'"),
    ],
)
def test_a_mistake_ends_in_one_line(hush: Hush, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = hush("report", *arguments)
    while "no connection yet" in done.stderr:  # a busy machine may not have one within a second
        done = hush("report", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert_one_line(done.stderr, "hush: ", words)


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ("heights",),
        ("heights", "1", "--device", "a/b"),
        ("heights", "1", "--brokr", "x"),
        ("heights", "1", "--timeout", "nan"),
        ("heights", "1", "--spread", "nan"),
    ],
)
def test_wrong_usage_ends_with_two(hush: Hush, arguments: tuple[str, ...]) -> None:
    done = hush("report", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.medium
def test_a_damaged_state_is_named_and_kept(hush: Hush, tmp_path: Path) -> None:
    (tmp_path / "hush").mkdir()
    (tmp_path / "hush" / "hush.sqlite3").write_text("no database at all" * 100)
    for command in (("report", "heights", "172"), ("ledger",)):
        done = hush(*command)
        assert done.returncode == 1
        assert_one_line(done.stderr, "hush.sqlite3", "restore no backup", "docs/device.md")


@pytest.mark.medium
def test_a_directory_without_a_state_is_an_error(hush: Hush, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, words in (("nope", "does not exist"), ("empty", "hush.sqlite3")):
        for extra in ((), ("--json",), ("--forget", "heights")):
            done = hush("ledger", "--state", str(tmp_path / name), *extra)
            assert (done.returncode, done.stdout) == (2, "")
            assert_one_line(done.stderr, f"hush: --state: {tmp_path / name} ", words)
    assert not (tmp_path / "nope").exists()
    assert [*(tmp_path / "empty").iterdir()] == []


@pytest.mark.medium
def test_the_epsilon_that_was_chosen_is_the_one_that_is_charged(hush: Hush) -> None:
    chosen = hush("report", "choice", "yes", "--epsilon", "0.5")
    assert chosen.returncode == 0, chosen.stderr
    assert_one_line(chosen.stdout, "cost epsilon 0.5", "epsilon 0.5 of 4")
    assert_one_line(hush("report", "choice", "no", "--device", "other").stdout, "cost epsilon 2")
    wrong = hush("report", "choice", "yes", "--device", "third", "--epsilon", "1")
    assert wrong.returncode == 2
    assert_one_line(wrong.stderr, "does not offer 1", "0.5 or 2")


@pytest.mark.medium
def test_a_label_and_a_vector_are_typed_as_they_are(hush: Hush) -> None:
    assert_one_line(hush("report", "colour", "light blue").stdout, "colour, round 0: sent")
    moved = hush("report", "move", "-0.5,2")
    assert moved.returncode == 0, moved.stderr
    assert_one_line(hush("report", "colour", "blue", "--device", "other").stdout, "colour, round 0: sent")


@pytest.mark.medium
def test_a_sticky_task_needs_the_option_sticky(hush: Hush) -> None:
    refused = hush("report", "habit", "yes")
    assert refused.returncode == 1
    assert_one_line(refused.stderr, "refused")
    assert "cost epsilon 1; spent for habits: epsilon 1 of 4" in hush("report", "habit", "yes", "--sticky").stdout


@pytest.mark.medium
def test_a_total_bounds_all_purposes(hush: Hush) -> None:
    assert hush("report", "heights", "172", "--total", "1.5").returncode == 0
    refused = hush("report", "smoker", "yes", "--total", "1.5")
    assert_one_line(refused.stderr, "refused", "all purposes together", "nothing was spent")


@pytest.mark.medium
@pytest.mark.parametrize("command", [("report", "heights", "172"), ("sync",)])
@pytest.mark.parametrize("seconds", ["nan", "inf"])
def test_an_endless_timeout_is_a_wrong_usage(hush: Hush, command: tuple[str, ...], seconds: str) -> None:
    done = hush(*command, "--timeout", seconds)
    assert done.returncode == 2
    assert f"--timeout {seconds}" in done.stderr


@pytest.mark.medium
def test_a_sync_under_another_name_says_what_it_leaves_alone(hush: Hush) -> None:
    assert hush("report", "heights", "172", "--device", "a").returncode == 0
    right = hush("sync", "--device", "a")
    assert "check" not in right.stdout
    assert right.stderr.startswith("hush: used the state")
    wrong = hush("sync", "--device", "b")
    assert_one_line(wrong.stdout, "1 kept for another", "--device")
    assert json.loads(hush("sync", "--device", "b", "--json").stdout)["elsewhere"] == 1
