"""Which ports can answer a task: what is said of each is what the port does."""

from pathlib import Path
from typing import Any

import pytest
from port_programs import Port, compiled, hexadecimal

from hush_aggregator.publish.explain import meaning
from hush_aggregator.publish.ports import C_COORDINATES, C_LEVELS, C_WIDTH, answered_by, memory_words, refusals_of
from hush_common.task import make_task

DAILY = {"rounds": 2000, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}


def labels(count: int) -> dict[str, Any]:
    return {"id": "t", "epsilon": "1", "domain": {"kind": "category", "labels": [f"c{n}" for n in range(count)]}}


def vector(count: int, sampled: int = 1) -> dict[str, Any]:
    parts = [{"name": f"n{n}", "lower": 0, "upper": 1} for n in range(count)]
    return {
        "id": "t",
        "epsilon": "9",
        "domain": {"kind": "vector", "coordinates": parts},
        "sampled": sampled,
        "levels": 1,
    }


def sticky(levels: int) -> dict[str, Any]:
    number = {"kind": "number", "lower": 0, "upper": 1}
    return {"id": "t", "epsilon": "1", "domain": number, "repeat": "sticky", "levels": levels, **DAILY}


def number(epsilon: str) -> dict[str, Any]:
    return {"id": "t", "epsilon": epsilon, "mechanism": "auto", "domain": {"kind": "number", "lower": 0, "upper": 1}}


DOCUMENTS = {
    "a number": number("1"),
    "the largest table": number("8"),
    "1024 labels": labels(1024),
    "as many coordinates": vector(C_COORDINATES),
    "a coordinate more": vector(C_COORDINATES + 1),
    "as wide a body": vector(40, C_WIDTH // 2),
    "a wider body": vector(40, C_WIDTH // 2 + 1),
    "as many sticky levels": sticky(C_LEVELS),
    "a sticky level more": sticky(C_LEVELS + 1),
}


@pytest.mark.large
def test_the_c_port_refuses_what_the_check_of_a_task_says(tmp_path: Path) -> None:
    port = Port((str(compiled(tmp_path, sanitized=False, options=())),))
    tasks = {name: make_task(document) for name, document in DOCUMENTS.items()}
    outcomes = port.ask([f"answer 50 1767225600 d none {hexadecimal(task.payload)} -" for task in tasks.values()])
    refused = {name for name, outcome in zip(tasks, outcomes, strict=True) if outcome == "too_large"}
    assert set(outcomes) == {"too_large", "random"}, "without random bytes what is read is not answered"
    assert refused == {name for name, task in tasks.items() if "C" in refusals_of(task)}


def test_the_ports_that_cannot_answer_are_named_with_the_reason() -> None:
    fractional = {**number("1"), "opens": "2026-01-01T00:00:00.5Z"}
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        (number("1"), [], ""),
        (vector(65), ["C"], "-DHUSH_COORDINATES=65"),
        (vector(40, C_WIDTH // 2 + 1), ["C"], "-DHUSH_WIDTH="),
        (sticky(C_LEVELS + 1), ["C"], f"-DHUSH_MEMORY_LEVELS={C_LEVELS + 1}"),
        (fractional, ["C", "JavaScript", "MicroPython"], "decimals"),
    ]
    for document, ports, reason in cases:
        facts = meaning(make_task(document))
        able = [name for name in ("Python", "C", "JavaScript", "MicroPython") if name not in ports]
        assert facts["answered_by"] == able
        refused = facts.get("not_answered_by", {})
        assert list(refused) == ports
        assert all(reason in text for text in refused.values())
        text = answered_by(make_task(document))
        assert text.partition(";")[0] == ", ".join(able)
        assert reason in text


def test_a_large_task_is_named_with_its_memory() -> None:
    assert memory_words(make_task(number("1"))) == ""
    assert "56 KB" in memory_words(make_task(number("8")))
