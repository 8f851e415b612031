"""All readers of tasks give the same verdict, but for the differences that docs/wire.md has.

A fuzzer draws tasks without end; the Python client and the ports to C, Node.js and MicroPython judge each. What is
accepted is answered from the same random bytes, and the reports are compared byte for byte.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice, tee
from pathlib import Path

import pytest
from port_cases import Case, reference
from port_fuzz import RULES, Drawn, drawn
from port_programs import Port, Session, compiled, hexadecimal, planted, port_of

from hush_common.errors import TaskError
from hush_common.task import decode_task

pytestmark = pytest.mark.large

ROOT = Path(__file__).parents[2]
SEED, SOAK_SEED = 20261122, 20261123
FEW, MANY = 6, 1000
"""Batches."""
NOW = 1767225600
BATCH = 100
REFUSALS = {"malformed", "task", "mechanism", "rounds", "epsilon", "too_large"}


Judged = tuple[Drawn, str, set[str]]
"""A task, the outcome by the Python client, and the rules by which a port refuses what that accepts."""


def judged(seed: int) -> Iterator[Judged]:
    """Tasks without end, with what the Python client makes of them."""
    for one in drawn(seed):
        with pytest.MonkeyPatch.context() as patch:  # while the generator waits, nothing is patched
            found = expected(one, patch)
        yield one, *found


def expected(one: Drawn, monkeypatch: pytest.MonkeyPatch) -> tuple[str, set[str]]:
    """The outcome by the Python client, or "refused"; and the rules by which a port refuses what that accepts."""
    try:
        task = decode_task(one.payload)
    except TaskError:
        return "refused", set()
    document = json.loads(one.payload)
    rules = {name for name, applies in RULES.items() if applies(document)}
    if rules:
        return "accepted", rules
    return reference(Case(task, one.value, one.data, NOW, "dev"), monkeypatch), rules


def order(one: Drawn) -> str:
    value = "none" if one.value is None else hexadecimal(one.value)
    return f"answer 50 {NOW} dev {value} {hexadecimal(one.payload)} {hexadecimal(one.data)}"


def differences(sessions: Mapping[str, Session], cases: Iterator[Judged], seen: Counter[str]) -> Iterator[str]:
    """What the ports make otherwise of a batch than the Python client does, without what a rule allows."""
    batch = list(islice(cases, BATCH))
    orders = [order(one) for one, *_ in batch]
    with ThreadPoolExecutor(len(sessions)) as pool:
        asked = pool.map(lambda session: session.ask(orders), sessions.values())
        outcomes = dict(zip(sessions, asked, strict=True))
    for at, (one, wanted, rules) in enumerate(batch):
        seen[wanted.split()[0]] += 1
        seen.update(rules)
        for name, found in outcomes.items():
            short = "refused" if found[at] in REFUSALS else found[at]
            if short != ("refused" if rules else wanted):
                yield f"{name}: {short[:60]}, Python: {wanted[:60]} {rules or ''}: {one.payload[:2000]!r} {one.value!r}"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Session]]:
    directory = tmp_path_factory.mktemp("ports")
    with ExitStack() as stack:
        yield {
            language: stack.enter_context(port_of(language, directory).session(directory / language))
            for language in ("c", "node", "micropython")
        }


@pytest.fixture(scope="module")
def again() -> Callable[[], Iterator[Judged]]:
    """The same tasks whenever it is called, which the Python client judges once."""
    first = judged(SEED)

    def start() -> Iterator[Judged]:
        nonlocal first
        first, cases = tee(first)
        return cases

    return start


def fuzz(ports: Mapping[str, Session], cases: Iterator[Judged], batches: int) -> Counter[str]:
    seen = Counter[str]()
    for _ in range(batches):
        assert list(differences(ports, cases, seen)) == []
    return seen


@pytest.mark.timeout(240)
def test_every_reader_gives_the_same_verdict(ports: Mapping[str, Session]) -> None:
    seen = fuzz(ports, judged(SEED), FEW)
    assert seen["ok"] > seen.total() // 20, "many are answered, so that reports are compared"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_reader_gives_the_same_verdict_on_many_tasks(ports: Mapping[str, Session]) -> None:
    seen = fuzz(ports, judged(SOAK_SEED), MANY)
    assert seen["ok"] > seen.total() // 20


def test_the_rules_are_those_of_the_document() -> None:
    text = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| a port refuses \| because \|\n\|---\|---\|\n(.*?)\n\n", text, flags=re.DOTALL)
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()] == list(RULES)


SLIPS = {
    "c takes a field twice": ("c", "c/hush.c", "status == HUSH_OK && *seen & BIT(field)", "false"),
    "node takes 1.0 for 1": (
        "node",
        "js/src/json.js",
        "decimals || power ? Number(token) : BigInt(token)",
        "Number.isInteger(Number(token)) ? BigInt(Number(token)) : Number(token)",
    ),
    "node shows what cannot be shown": ("node", "js/src/json.js", "!UNPRINTABLE.test(text)", 'text !== "\\0"'),
    "micropython takes a field twice": (
        "cpython",
        "micropython/hush_micropython.py",
        "name not in names or name in seen",
        "name not in names",
    ),
}
"""Planted in a port, each must be found."""


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_found(
    slip: tuple[str, str, str, str], tmp_path: Path, again: Callable[[], Iterator[Judged]]
) -> None:
    language, name, right, wrong = slip
    client = planted(tmp_path, name, right, wrong)
    if language == "c":
        port = Port((str(compiled(tmp_path, library=client / "ports" / name, sanitized=False)),))
    else:
        port = port_of(language, tmp_path, client=client)
    cases, seen = again(), Counter[str]()
    with port.session(tmp_path / "log") as session:
        assert any(any(differences({language: session}, cases, seen)) for _ in range(60))
