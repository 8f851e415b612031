"""The published vectors, from the side of a device: what to write, and what to refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from port_cases import VECTORS, Answer, answer_of, answers_from_memory, reference, vectors
from port_programs import FEATURES, Port, hexadecimal

from hush import Task
from hush_common.epsilon import parse_epsilon, weight_of_lie
from hush_common.errors import TaskError
from hush_common.task import decode_task

GOOD = json.loads((Path(__file__).parents[1] / "vectors" / "v1" / "good.json").read_text(encoding="utf-8"))
HEIGHTS = VECTORS["answers"][0]
TIMED = next(vector for vector in VECTORS["answers"] if '"closes"' in vector["task"])
SURVEY = next(vector for vector in VECTORS["answers"] if '"bit"' in vector["task"])
DIGEST, ID = "02908043484338bda7455dbafab9f7a0", "000102030405060708090a0b0c0d0e0f"
OPENS, CLOSES = 1767225600, 1769904000


def packed(numbers: list[int]) -> str:
    return "".join(number.to_bytes(8, "big", signed=True).hex() for number in numbers) or "-"


def share(port: Port, vectors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The vectors for a port: a slow one gets every fifth."""
    return vectors[::5] if port.is_slow else vectors


def facts_of(task: Task, vector: dict[str, Any]) -> str:
    """An answer as a port writes it."""
    facts = [vector["id"], ",".join(map(str, vector["body"])), vector["became"], "0"]
    facts += [vector["topic"], vector["frame"], vector["json"]]
    return " ".join([task.digest.hex(), *facts])


def outcome_of(vector: dict[str, Any]) -> str:
    return f"ok {facts_of(decode_task(vector['task'].encode()), vector)}"


def answer_order(vector: dict[str, Any]) -> str:
    value = "none" if vector["value"] is None else hexadecimal(vector["value"])
    words = [vector["sender"], value, hexadecimal(vector["task"]), hexadecimal(bytes.fromhex(vector["random"]))]
    return " ".join(["answer", vector["most"], str(vector["now"]), *words])


def test_the_vectors_have_every_feature() -> None:
    found = [need for vector in (*VECTORS["answers"], *VECTORS["sticky"]) for need in vector["needs"]]
    assert set(found) == FEATURES
    assert len(VECTORS["answers"]) > 600


@pytest.mark.medium
def test_the_python_client_makes_the_reports_of_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [reference(case, monkeypatch) for case in vectors()] == [outcome_of(v) for v in VECTORS["answers"]]


@pytest.mark.medium
def test_the_python_client_decides_as_the_vectors_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for case, vector in zip(vectors(), VECTORS["answers"], strict=True):
        answer = answer_of(case, monkeypatch)
        assert isinstance(answer, Answer)
        cost = f"{answer.cost.numerator}/{answer.cost.denominator}"
        assert (answer.report.round, answer.offer, cost) == (vector["round"], vector["offer"], vector["cost"])


def test_a_port_makes_the_reports_of_the_vectors(port: Port) -> None:
    asked = share(port, VECTORS["answers"])
    for vector, outcome in zip(asked, port.ask([answer_order(vector) for vector in asked]), strict=True):
        assert outcome == outcome_of(vector), vector["name"]


def test_a_port_decides_as_the_vectors_say(port: Port) -> None:
    """Before any value is read: the round, the offer that the limit of the device allows, and what it costs."""
    asked = share(port, VECTORS["answers"])
    orders = [f"decide {vector['most']} {vector['now']} {hexadecimal(vector['task'])}" for vector in asked]
    for vector, outcome in zip(asked, port.ask(orders), strict=True):
        assert outcome == f"ok {vector['round']} {vector['offer']} {vector['cost']}", vector["name"]


def sticky_order(vector: dict[str, Any]) -> str:
    words = [vector["most"], vector["sender"], hexadecimal(vector["task"]), vector["random"]]
    for one in vector["answers"]:
        words += [str(one["now"]), "none" if one["value"] is None else hexadecimal(one["value"])]
    return " ".join(["sticky", *words])


def sticky_outcome(vector: dict[str, Any], outcome: str) -> str:
    """The answers of the vector as a port writes them, with the random bytes left that the outcome has."""
    task, found = decode_task(vector["task"].encode()), outcome.removeprefix("ok ").split(" | ")
    lines = []
    for one, line in zip(vector["answers"], found, strict=True):
        words = facts_of(task, one).split(" ")
        lines.append(" ".join([*words[:4], line.split(" ")[4], *words[5:]]))
    assert found[-1].split(" ")[4] == "0", "everything is drawn"
    return f"ok {' | '.join(lines)}"


def test_the_python_client_answers_from_memory_as_the_vectors_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for vector in VECTORS["sticky"]:
        task, given = decode_task(vector["task"].encode()), [(one["now"], one["value"]) for one in vector["answers"]]
        found = answers_from_memory(task, vector["sender"], given, bytes.fromhex(vector["random"]), monkeypatch)
        outcome = f"ok {' | '.join(answer.facts(task) for answer in found)}"
        assert outcome == sticky_outcome(vector, outcome), vector["name"]


def test_a_port_answers_from_memory_as_the_vectors_say(port: Port) -> None:
    asked = share(port, VECTORS["sticky"])
    for vector, outcome in zip(asked, port.ask([sticky_order(vector) for vector in asked]), strict=True):
        assert outcome == sticky_outcome(vector, outcome), vector["name"]


def test_the_weights_of_the_vectors_are_those_of_the_python_client() -> None:
    for vector in VECTORS["weights"]:
        assert str(weight_of_lie(parse_epsilon(vector["epsilon"]))) == vector["weight"]


def test_the_python_client_refuses_the_tasks_that_are_not_legal() -> None:
    for vector in VECTORS["refused_tasks"]:
        payload = bytes.fromhex(vector["payload"])
        if vector["legal"]:
            assert decode_task(payload).payload == payload, vector["name"]
        else:
            with pytest.raises(TaskError):
                decode_task(payload)


def test_a_port_refuses_a_task_that_it_does_not_fully_understand(port: Port) -> None:
    asked = [vector for vector in VECTORS["refused_tasks"] if "needs" not in vector]
    orders = [f"answer 50 0 dev 31 {vector['payload'] or '-'} {'00' * 400}" for vector in asked]
    for vector, outcome in zip(asked, port.ask(orders), strict=True):
        assert port.agrees(outcome, vector["refusal"], among={"malformed", "task"}), vector["name"]


def test_a_port_answers_tasks_that_others_may_lack_features_for(port: Port) -> None:
    asked = [vector for vector in VECTORS["refused_tasks"] if "needs" in vector]
    outcomes = port.ask([f"answer 50 {OPENS} dev 31 {vector['payload']} {'05' * 4000}" for vector in asked])
    for vector, outcome in zip(asked, outcomes, strict=True):
        assert outcome.split()[0] in ("ok", "random"), vector["name"]


def order(vector: dict[str, Any], *, most: str = "4", now: int = OPENS, value: str = "172") -> str:
    """An answer with the random bytes of a vector; other values take as many."""
    words = [hexadecimal(value), hexadecimal(vector["task"]), vector["random"]]
    return " ".join(["answer", most, str(now), "dev", *words])


def statuses(outcomes: list[str]) -> list[str]:
    return [outcome.split()[0] for outcome in outcomes]


def test_a_port_keeps_to_the_limit_of_the_device(port: Port) -> None:
    limits = {
        "0.999999": "epsilon",
        "1": "ok",
        "1.0": "ok",
        "4": "ok",
        "0": "epsilon",
        "1/2": "argument",
        "x": "argument",
    }
    assert statuses(port.ask([order(HEIGHTS, most=most) for most in limits])) == list(limits.values())


def test_a_port_answers_a_task_only_while_it_is_open(port: Port) -> None:
    moments = {OPENS - 1: "not_open", OPENS: "ok", CLOSES - 1: "ok", CLOSES: "closed"}
    assert statuses(port.ask([order(TIMED, now=now) for now in moments])) == list(moments.values())
    task = decode_task(TIMED["task"].encode())
    assert task.opens is not None
    assert task.closes is not None
    assert [task.opens.timestamp(), task.closes.timestamp()] == [OPENS, CLOSES]


def test_no_value_keeps_a_port_from_answering(port: Port) -> None:
    more = HEIGHTS | {"random": "05" * 300}  # a replaced value takes some bytes more
    values = {"119.99": "moved", "120": "used", "220": "used", "inf": "moved", "yes": "replaced", "": "replaced"}
    outcomes = port.ask([order(more, value=value) for value in values])
    assert statuses(outcomes) == ["ok"] * len(values)
    assert [outcome.split()[4] for outcome in outcomes] == list(values.values())


def test_a_task_under_which_silence_would_tell_is_refused(port: Port) -> None:
    refusing = HEIGHTS | {"task": HEIGHTS["task"].replace('"clamp"', '"refuse"')}
    assert port.ask([order(refusing, value=value) for value in ("120", "300", "x")]) == ["task"] * 3
    with pytest.raises(TaskError, match="clamp"):
        decode_task(refusing["task"].encode())


def test_a_port_does_not_wait_for_ever_for_a_source_that_is_stuck(port: Port) -> None:
    assert port.ask([order(HEIGHTS | {"random": "00" * 100_000})]) == ["random"]
    assert port.ask([order(SURVEY | {"random": "ff" * 100_000}, value="yes")]) == ["random"]


@pytest.mark.parametrize("vector", GOOD["frames"], ids=lambda vector: str(vector["name"]))
def test_a_port_writes_a_frame_byte_for_byte(port: Port, vector: dict[str, Any]) -> None:
    width, size = len(vector["reports"][0]["body"]), len(vector["payload"]) // 2
    ids = "".join(report["id"] for report in vector["reports"])
    bodies = packed([number for report in vector["reports"] for number in report["body"]])
    orders = [
        f"frame {vector['round']} {width} {capacity} {vector['digest']} {ids} {bodies}" for capacity in (size, size - 1)
    ]
    fits, full = port.ask(orders)
    assert fits == f"ok {vector['payload']}"
    assert full in ("space", fits), "a Python has room"


@pytest.mark.parametrize("vector", GOOD["json"], ids=lambda vector: str(vector["name"]))
def test_a_port_writes_a_json_report_byte_for_byte(port: Port, vector: dict[str, Any]) -> None:
    head, size = f"json {vector['round']}", len(vector["payload"])
    tail = f"{vector['task']} {vector['digest']} {vector['id']} {packed(vector['body'])}"
    fits, full = port.ask([f"{head} {size} {tail}", f"{head} {size - 1} {tail}"])
    assert fits == f"ok {vector['payload']}"
    assert full in ("space", fits), "a Python has room"


@pytest.mark.parametrize(("width", "count"), [(1, 0), (0, 1), (1, 4097), (1025, 1)])
def test_a_port_writes_no_frame_that_the_wire_does_not_have(port: Port, width: int, count: int) -> None:
    bodies = packed([7] * (width * count))
    outcome = port.ask([f"frame 0 {width} 9999999 {DIGEST} {ID * count or '-'} {bodies}"])[0]
    assert outcome == "argument"


def test_a_port_writes_the_largest_frames(port: Port) -> None:
    many, wide = port.ask(
        [f"frame 0 {w} 9999999 {DIGEST} {ID * n} {packed([-3] * (w * n))}" for w, n in [(1, 4096), (1024, 1)]]
    )
    assert many == f"ok 02000008{DIGEST}00000000" + (ID + packed([-3])) * 4096
    assert wide == f"ok 02002000{DIGEST}00000000{ID}" + packed([-3]) * 1024


TOPICS = {
    ("a", "b"): "ok hush/v1/reports/a/b",
    ("a" * 64, "A.b_c@d:e-9" + "x" * 117): f"ok hush/v1/reports/{'a' * 64}/A.b_c@d:e-9{'x' * 117}",
    ("a" * 65, "b"): "argument",
    ("", "b"): "argument",
    ("-a", "b"): "argument",
    ("A", "b"): "argument",
    ("a", ""): "argument",
    ("a", "x" * 129): "argument",
    ("a", "-b"): "argument",
    ("a", "b/c"): "argument",
    ("a", "+"): "argument",
    ("a", "#"): "argument",
    ("a/b", "c"): "argument",
    ("a", "é"): "argument",
}


def test_a_port_builds_topics_of_legal_names_alone(port: Port) -> None:
    orders = [f"topic 256 {hexadecimal(task)} {hexadecimal(sender)}" for task, sender in TOPICS]
    assert port.ask(orders) == list(TOPICS.values())
