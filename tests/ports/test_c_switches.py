"""What a build of the C port leaves out is refused with its own status; all else is answered as by the whole port."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from port_cases import VECTORS, needs_of
from port_programs import C_PORT, LARGE, Port, compiled, hexadecimal

from hush import Task
from hush_common.task import decode_task

pytestmark = pytest.mark.large


def by(mechanism: str) -> Callable[[Task], bool]:
    return lambda task: task.mechanism == mechanism


SWITCHES: Mapping[str, Callable[[Task], bool]] = {
    "LAPLACE": by("laplace"),
    "MULTILEVEL": by("multilevel"),
    "TABLE": by("table"),
    "RANDOMIZED_RESPONSE": by("randomized_response"),
    "COINS": lambda task: "coins" in needs_of(task),
    "SUBSET_SELECTION": by("subset_selection"),
    "VECTOR": by("vector"),
}


def built(directory: Path, *switches: str) -> Port:
    options = [*LARGE, *(f"-DHUSH_WITHOUT_{switch}" for switch in switches)]
    return Port((str(compiled(directory, sanitized=False, options=options)),))


def orders(vectors: list[dict[str, Any]]) -> list[str]:
    found = []
    for vector in vectors:
        value = "none" if vector["value"] is None else hexadecimal(vector["value"])
        words = [vector["most"], vector["now"], vector["sender"], value, hexadecimal(vector["task"]), vector["random"]]
        found.append(" ".join(["answer", *map(str, words)]))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Task, str]]:
    """The tasks of the vectors, and the answers of the whole port."""
    asked = built(tmp_path_factory.mktemp("whole")).ask(orders(VECTORS["answers"]))
    return [
        (decode_task(vector["task"].encode()), answer) for vector, answer in zip(VECTORS["answers"], asked, strict=True)
    ]


@pytest.mark.parametrize(
    "switches",
    [("LAPLACE", "TABLE", "SUBSET_SELECTION"), ("MULTILEVEL", "COINS", "VECTOR"), ("RANDOMIZED_RESPONSE",)],
    ids="-".join,
)
def test_only_what_is_left_out_of_a_build_is_refused(
    switches: Sequence[str], whole: list[tuple[Task, str]], tmp_path: Path
) -> None:
    found = built(tmp_path, *switches).ask(orders(VECTORS["answers"]))
    left_out = [any(SWITCHES[switch](task) for switch in switches) for task, _ in whole]
    assert found == ["mechanism" if is_out else answer for is_out, (_, answer) in zip(left_out, whole, strict=True)]
    assert 0 < sum(left_out) < len(left_out)


def test_a_task_with_a_memory_is_refused_by_its_own_status(whole: list[tuple[Task, str]], tmp_path: Path) -> None:
    port = built(tmp_path, "STICKY")
    assert port.ask(orders(VECTORS["answers"])) == [answer for _, answer in whole]
    sticky = VECTORS["sticky"]
    assert sticky
    decide = [f"decide 50 {vector['answers'][0]['now']} {hexadecimal(vector['task'])}" for vector in sticky]
    assert set(port.ask(decide)) == {"rounds"}


def test_every_status_has_its_own_message(tmp_path: Path) -> None:
    main = tmp_path / "messages.c"
    main.write_text(
        '#include "hush.h"\n#include <stdio.h>\n'
        "int main(void)\n{\n    for (int status = 0; status <= HUSH_FULL + 2; status++) {\n"
        "        (void)puts(hush_message((hush_status)status));\n    }\n}\n",
        encoding="utf-8",
    )
    program = compiled(tmp_path, main=main, library=C_PORT / "hush.c", sanitized=False)
    *said, beyond, last = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert beyond == last
    assert beyond not in said
    assert len(set(said)) == len(said) == 19
