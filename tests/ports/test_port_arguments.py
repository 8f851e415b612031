"""A mistake of the program is told before anything is drawn, by its type alone; a value of the right type never is."""

import importlib.util
import json
import subprocess
from types import ModuleType

import pytest
from port_cases import VECTORS
from port_programs import PORTS
from servers import need

HEIGHTS = VECTORS["answers"][0]
SURVEY = next(vector for vector in VECTORS["answers"] if '"bit"' in vector["task"])
NODE = """
import * as hush from "{ports}/js/src/core.js";
const orders = {orders};
for (const [payload, value] of orders) {{
  let drawn = 0;
  const task = hush.readTask(Buffer.from(payload));
  const random = (size) => {{ drawn++; return new Uint8Array(size).fill(5); }};
  try {{
    console.log(hush.draw(task, eval(value), {{ round: 0, random }}).value);
  }} catch (error) {{
    console.log(`${{error.name}} ${{error.message}}, drawn ${{drawn}}`);
  }}
}}
"""


def in_node(task: str, values: list[str]) -> list[str]:
    """What becomes of values, each a piece of JavaScript."""
    script = NODE.format(ports=PORTS, orders=json.dumps([(task, f"({value})") for value in values]))
    command = [need("node"), "--input-type=module", "-e", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def micropython() -> ModuleType:
    """The file for MicroPython, in the interpreter of the tests."""
    specification = importlib.util.spec_from_file_location(
        "hush_micropython", PORTS / "micropython" / "hush_micropython.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("value", [172.0, 172, True, b"172", [172], {"cm": 172}])
def test_micropython_tells_which_type_a_value_has(micropython: ModuleType, value: object) -> None:
    task = micropython.read_task(HEIGHTS["task"].encode(), "4")
    with pytest.raises(TypeError) as raised:
        micropython.answer(task, value, 1767225600, None)  # what cannot be drawn from is not drawn from
    assert type(value).__name__ in str(raised.value)
    assert "172.5" in str(raised.value), "an example"
    with pytest.raises(TypeError, match="text"):
        micropython.index_of(task, value)


@pytest.mark.parametrize("limit", [4, 4.0, None, "", "1/2"])
def test_micropython_tells_that_a_limit_is_text(micropython: ModuleType, limit: object) -> None:
    with pytest.raises(micropython.HushError) as raised:
        micropython.read_task(HEIGHTS["task"].encode(), limit)
    assert "max_epsilon" in str(raised.value)


def test_micropython_tells_whether_a_task_is_early_or_late(micropython: ModuleType) -> None:
    timed = next(vector for vector in VECTORS["answers"] if '"closes"' in vector["task"])
    task = micropython.read_task(timed["task"].encode(), "50")
    for now, status, seconds in ((task.opens - 90, "not_open", "90 s"), (task.closes, "closed", "0 s")):
        with pytest.raises(micropython.HushError) as raised:
            micropython.answer(task, "0.5", now, None)
        assert str(raised.value).startswith(f"{status}: ")
        assert seconds in str(raised.value)


@pytest.mark.large
def test_node_reads_numbers_as_they_are() -> None:
    values = ["172.5", "'172.5'", "-0", "1e300", "Infinity", "NaN", "null", "undefined", "'yes'", "''"]
    became = ["used", "used", "moved", "moved", "moved", *["replaced"] * 5]
    assert in_node(HEIGHTS["task"], values) == became
    assert in_node(SURVEY["task"], ["true", "false", "'yes'", "'2'", "null"]) == ["used"] * 3 + ["replaced"] * 2


@pytest.mark.large
def test_node_refuses_a_value_of_another_type_before_anything_is_drawn() -> None:
    for task, values in (
        (HEIGHTS["task"], ["true", "[172]", "{}", "172n", "() => 172", "new Number(172)"]),
        (SURVEY["task"], ["1", "[true]"]),
    ):
        for outcome in in_node(task, values):
            assert outcome.startswith("TypeError ")
            assert outcome.endswith(", drawn 0")
