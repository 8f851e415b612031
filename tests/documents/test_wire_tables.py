"""The tables of docs/wire.md are what the code does: fields, defaults, what epsilon may be, topics, connection."""

import asyncio
import copy
import itertools
import json
import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from servers import Mosquitto, need

from hush import Task
from hush_client import Client
from hush_client.sending import mqtt
from hush_common import epsilon, topics, untrusted
from hush_common.errors import TaskError
from hush_common.mechanisms.registry import fitting
from hush_common.task import decode_task

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
VECTORS = json.loads((ROOT / "tests" / "vectors" / "v1" / "good.json").read_text(encoding="utf-8"))
DOCUMENTS = [json.loads(vector["payload"]) for vector in VECTORS["tasks"]]
"""Published tasks of every kind and mechanism."""
INSIDE = {"table": ("positions", "unit", "weights"), "coins": ("truth", "yes")}
"""Fields that the table names in the row of the object that has them."""


def rows(head: str) -> list[list[str]]:
    """The cells of the table that starts with a head."""
    lines = DOCUMENT.split(head + "\n", 1)[1].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[: lines.index("")]]


def left_out() -> dict[str, str]:
    """What the document says of a task without a field, by the dotted name of the field."""
    found = {}
    for names, _, without, what, _ in rows("| field | JSON | left out | what | in a small client |"):
        for name in re.findall(r"`([a-z_.]+)`", names):
            found[name] = without.strip("`")
            for part in INSIDE.get(name, ()):
                assert f"`{part}`" in what
                found[f"{name}.{part}"] = "refused"
    for name in ("lower", "upper", "outside", "unit"):  # "as a number has them"
        found[f"domain.coordinates.{name}"] = found[f"domain.{name}"]
    return found


def decoded(document: object) -> Task:
    """A task without its bytes, so that two that ask the same are equal."""
    return replace(decode_task(json.dumps(document, ensure_ascii=False).encode()), payload=b"")


def paths(document: dict[str, Any], above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for name, value in document.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))
        if isinstance(value, list) and isinstance(value[0], dict):
            yield from paths(value[0], (*above, name, 0))


def changed(document: dict[str, Any], path: tuple[str | int, ...], value: object = None) -> dict[str, Any]:
    """A copy with another value at a place, or without what is there."""
    copied = copy.deepcopy(document)
    *above, last = path
    part: Any = copied
    for step in above:
        part = part[step]
    part[last] = value
    if value is None:
        del part[last]
    return copied


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(step) for step in path if isinstance(step, str))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The dotted names of all fields that the reader of a task asks for, and what it takes where one is left out."""
    names: dict[str, object] = {}
    anything = untrusted.Fields.anything

    def noted(self: untrusted.Fields, name: str, default: object = untrusted._REQUIRED) -> object:
        names[re.sub(r"\.\d+", "", self.path(name))] = default
        return anything(self, name, default)

    monkeypatch.setattr(untrusted.Fields, "anything", noted)
    return names


def test_the_table_has_every_field_that_the_code_reads_with_its_default_and_no_other(asked: dict[str, object]) -> None:
    for document in DOCUMENTS:
        decoded(document)
    said = left_out()
    assert set(said) == set(asked)
    for name, default in asked.items():
        if default not in (None, [], untrusted._REQUIRED):  # whether those are refused is asked below
            assert json.loads(said[name]) == default, name
        else:
            assert said[name] in (["refused"] if default is untrusted._REQUIRED else ["refused", "none", "the first"])


def test_what_becomes_of_a_task_without_a_field_is_what_the_table_says() -> None:
    said, seen = left_out(), set()
    for document in DOCUMENTS:
        for path in paths(document):
            name, without = dotted(path), changed(document, path)
            seen.add(name)
            if said[name] == "refused" and not (name == "epsilon" and "coins" in document):
                with pytest.raises(TaskError):
                    decoded(without)
            elif said[name] not in ("refused", "none", "the first"):
                stated = changed(document, path, json.loads(said[name]))
                assert outcome(without) == outcome(stated), name
    assert seen | {"round_every", "repeat", "domain.coordinates.outside"} == set(said)


@pytest.mark.parametrize("domain", [{"kind": "number", "lower": 0, "upper": 1}, {"kind": "bit"}])
def test_the_mechanism_that_is_left_out_is_the_first_of_its_row(domain: dict[str, object]) -> None:
    assert left_out()["mechanism"] == "the first"
    task = decoded({"id": "a", "epsilon": "1", "domain": domain})
    assert task.mechanism == fitting(task.domain)[0].name
    assert f"of a {domain['kind']} `{task.mechanism}`" in DOCUMENT


def outcome(document: dict[str, Any]) -> Task | str:
    try:
        return decoded(document)
    except TaskError as error:
        return str(error)


def test_what_has_a_default_or_none_may_be_left_out(asked: dict[str, object]) -> None:
    domain = {"kind": "number", "lower": 0, "upper": 1}
    barest = {"id": "a", "epsilon": "1", "domain": domain}
    decoded(barest)
    needed = {*barest, *(f"domain.{name}" for name in domain)}
    of_other_mechanisms = {"levels", "size", "sampled", "table"}
    assert {name for name in asked if left_out()[name] == "refused"} == needed | of_other_mechanisms


@pytest.mark.parametrize("outside", ["refuse", "wrap", "", "Clamp"])
def test_clamp_is_the_only_legal_way_outside(outside: str) -> None:
    assert left_out()["domain.outside"] == '"clamp"'
    with pytest.raises(TaskError):
        decoded(changed(DOCUMENTS[0], ("domain", "outside"), outside))


def test_the_grammar_of_epsilon_is_that_of_the_code() -> None:
    (grammar,) = re.findall(r"```regex\n(.*?)\n```", DOCUMENT, re.DOTALL)
    assert grammar == epsilon._DECIMAL.pattern
    examples = DOCUMENT.split(grammar, 1)[1].split("The number is", 1)[0]
    good, bad = (re.findall(r'`"([^"]*)"`', part) for part in examples.split("; not"))
    assert (len(good), len(bad)) == (5, 6)
    for text in good:
        assert epsilon.parse_epsilon(text) > 0
    for text in [*bad, 1.0]:
        with pytest.raises(TaskError):
            epsilon.parse_epsilon(text)


def test_every_topic_is_in_the_document() -> None:
    named = re.findall(r"^(hush/v1/\S+)", str(topics.__doc__), re.MULTILINE)
    assert len(named) == 5
    assert [row[0].strip("`") for row in rows("| topic | who writes | what |")] == named


async def recorded(broker: int, task: str, directory: Path) -> bytes:
    """What a client sends to a broker, at which somebody listens, while it answers a task once."""
    sent = bytearray()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: bytearray) -> None:
        while data := await reader.read(4096):
            note += data
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", broker)
        try:
            await asyncio.gather(pass_on(reader, there[1], sent), pass_on(there[0], writer, bytearray()))
        finally:
            for one in (there[1], writer):
                one.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with aiomqtt.Client("127.0.0.1", broker) as listening:
            await listening.subscribe(topics.ALL_REPORTS, 1)
            async with Client(url, device="dev", state=directory, spread=0) as client:
                receipt = await client.report(task, 172.0)
        assert receipt.status == "sent"
    return bytes(sent)


def packets(sent: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, flags and body of each MQTT packet shorter than 128 bytes."""
    while sent:
        assert sent[1] < 128
        yield sent[0] >> 4, sent[0] & 15, sent[2 : 2 + sent[1]]
        sent = sent[2 + sent[1] :]


def test_the_client_connects_and_sends_as_the_document_says(mosquitto: Mosquitto, tmp_path: Path) -> None:
    publish = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-q", "1", "-r", "-t", "hush/v1/tasks/heights", "-s"]
    subprocess.run(publish, input=VECTORS["tasks"][0]["payload"].encode(), check=True)
    sent = asyncio.run(recorded(mosquitto.port, "heights", tmp_path))
    connect, subscribe, _acknowledgement, report = itertools.islice(packets(sent), 4)
    level, flags, seconds = struct.unpack_from(">BBH", connect[2], 6)
    assert (connect[:2], connect[2][:6], level, flags) == ((1, 0), b"\0\4MQTT", 5, 2), "level 5, a clean start alone"
    after = 11 + connect[2][10]  # properties, after their length; no session expiry (17) among them
    assert 17 not in connect[2][11:after]
    assert re.fullmatch(rb"dev-[0-9a-f]{12}", connect[2][after + 2 :])
    assert subscribe == (8, 2, subscribe[2][:2] + b"\0\0\x15hush/v1/tasks/heights\1"), "at QoS 1, no properties"
    assert report[:2] == (3, 0b0010), "at QoS 1, not retained"
    said = dict(rows("| | |"))
    patience = f"{mqtt._PATIENCE_SECONDS:.0f} s"
    for name, words in (
        ("protocol", "MQTT 5. Use 3.1.1 if the broker refuses 5"),
        ("session", "clean (under MQTT 5 a clean start, and no session expiry). "),
        ("keep alive", f"{seconds} s"),
        ("client id", "any, but different for every connection"),
        ("subscription", "`hush/v1/tasks/{task}`, or `hush/v1/tasks/+` for all, at QoS 1."),
        ("reports", f"QoS 1, not retained. Without an acknowledgement in {patience}"),
    ):
        assert said.pop(name).startswith(words)
    assert said == {}
