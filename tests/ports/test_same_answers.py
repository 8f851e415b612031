"""From the same random bytes the ports and the Python client make the same report, byte for byte.

That pins the law: what the statistics of the Python sampler prove holds for every port that consumes the same bytes to
the same end, on every path that these inputs reach, the edges of every threshold among them.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from port_cases import Case, cases, plain_task, reference, some_value, vectors
from port_programs import C_PORT, Port, compiled, planted, port_of

from hush_client import Policy, Reason
from hush_client.privacy.decide import DecisionTime, SpendingHistory, decide
from hush_common.epsilon import decimal_text
from hush_common.task import make_task

SEED = 2026
CASES = 1500
PARTS = 8


@dataclass(frozen=True)
class Known:
    """Cases with the outcome of the Python client."""

    cases: Sequence[Case]
    outcomes: Sequence[str]

    def first(self, count: int) -> "Known":
        """The vectors and so many of the random cases."""
        end = len(self.cases) - CASES + count
        return Known(self.cases[:end], self.outcomes[:end])

    @property
    def orders(self) -> list[str]:
        return [case.order for case in self.cases]


@pytest.fixture(scope="module")
def known() -> Known:
    asked = [*vectors(), *cases(SEED, CASES)]
    with pytest.MonkeyPatch.context() as patch:
        return Known(asked, [reference(case, patch) for case in asked])


@pytest.mark.timeout(600)  # MicroPython in node has all vectors to make, too
def test_every_port_makes_the_report_of_the_python_client(port: Port, known: Known) -> None:
    few = known.first(port.share(CASES))
    for case, outcome, right in zip(few.cases, port.ask(few.orders), few.outcomes, strict=True):
        assert outcome == right, (case.task.payload, case.value, case.data.hex())
    answered = [outcome for outcome in few.outcomes if outcome.startswith("ok")]
    assert len(answered) > len(few.cases) // 2, "most cases are answered, so that most of the comparison is of reports"
    assert {outcome.split()[4] for outcome in answered} == {"used", "moved", "replaced"}
    assert "random" in few.outcomes, "and a source that ends"


# ---- twenty tasks, with all that a device decides about them

NOW = 1_790_000_000
FEW = 20


def twenty() -> Iterator[tuple[Case, str]]:
    """Random tasks and values, and the limit of the device. At most one thing about each forbids an answer."""
    source = random.Random(SEED)  # noqa: S311 - a test wants the same tasks every time
    for task in (plain_task(source) for _ in range(FEW)):
        free = [(-1, 1), (0, 1), (1, 2), (-2, -1), (-2, 0), (None, None)]
        near = [(-1, 1, decimal_text(task.epsilon / 2)), (None, None, decimal_text(task.epsilon))]
        opens, closes, limit = source.choice([*((*hours, "50") for hours in free), *near])
        times = {
            name: datetime.fromtimestamp(NOW + hours * 3600, UTC).isoformat()
            for name, hours in (("opens", opens), ("closes", closes))
            if hours is not None
        }
        timed = make_task({**json.loads(task.payload), **times})
        yield Case(timed, some_value(source, timed), source.randbytes(600), NOW), limit


_VERDICTS: dict[object, str] = {
    Reason.EPSILON_TOO_LARGE: "epsilon",
    Reason.NOT_OPEN: "not_open",
    Reason.CLOSED: "closed",
}


def test_a_port_gives_the_verdict_and_the_bytes_of_the_python_client(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, orders = [], []
    for case, limit in twenty():
        policy = Policy(max_epsilon=limit, lifetime=50)
        receipt, _ = decide(
            case.task, policy, SpendingHistory(), room=True, time=DecisionTime(datetime.fromtimestamp(NOW, UTC))
        )
        right = reference(case, monkeypatch) if receipt.reason is None else _VERDICTS[receipt.reason]
        expected.append(right)
        orders.append(case.order.replace("answer 50 ", f"answer {limit} ", 1))
    assert port.ask(orders) == expected
    assert {text.split()[0] for text in expected} == {"ok", "epsilon", "not_open", "closed"}
    assert {case.task.mechanism for case, _ in twenty()} == {"laplace", "multilevel", "randomized_response"}


SLIPS = {
    "the weight of a lie is not rounded up": ("    big_add_small(weight, 1);\n", ""),
    "the limit itself is accepted": ("if (big_bits(&last) <= 8 * size) {", "if (big_bits(&last) <= 8 * size + 1) {"),
    "zero has two signs": ("if (*negative && !out->used) {", "if (false) {"),
    "the window is rounded down": (" + (rest.used != 0);", ";"),
    "ties go up": ("(half == 0 && (*index & 1))", "half == 0"),
    "a lie may be the truth": ("other + (other >= level)", "other + (other > level)"),
    "a missing value never lies at the upper end": ("(uint64_t)most_index(task) + 1", "(uint64_t)most_index(task)"),
    "an output of a table has a draw too few": (
        "one->output += wide_compare(&one->sum, &one->draw) <= 0;",
        "one->output += wide_compare(&one->sum, &one->draw) < 0;",
    ),
    "a set has the truth too often": ("big_compare(&draw, &with_truth) < 0;", "big_compare(&draw, &with_truth) <= 0;"),
    "every coordinate has the same draw": ("            levels = others;\n", ""),
}
"""Planted in hush.c, each must be seen by the comparison above."""

MICROPYTHON_SLIPS = {
    "the weight of a lie is not rounded up": ("    return below + 1\n", "    return below\n"),
    "the limit itself is accepted": ("            if draw < limit:\n", "            if draw <= limit:\n"),
    "zero has two signs": ("if not (negative and magnitude == 0):", "if magnitude >= 0:"),
    "the window is rounded down": ("window = -(-40 * t // s)", "window = 40 * t // s"),
    "a lie may be the truth": ("other + 1 if other >= level", "other + 1 if other > level"),
    "a missing value never lies at the upper end": ("else STEPS + 1\n\n\ndef perturb", "else STEPS\n\n\ndef perturb"),
    "a table takes the output before": ("if row == level and draw >= 0", "if row == level and draw > 0"),
    "a set lacks the index": (
        "bits, bit = _subset(count - 1, size - 1, rng), 1",
        "bits, bit = _subset(count - 1, size - 1, rng), 0",
    ),
}

JS_SLIPS = {
    "numbers.js: the weight of a lie is not rounded up": ("(TRUTH * ONE) / low + 1n)", "(TRUTH * ONE) / low)"),
    "numbers.js: the limit itself is accepted": ("if (draw < limit)", "if (draw <= limit)"),
    "mechanisms.js: zero has two signs": ("if (!(isNegative && magnitude === 0n))", "if (true)"),
    "mechanisms.js: the window is rounded down": ("(40n * t + s - 1n) / s", "(40n * t) / s"),
    "mechanisms.js: a lie may be the truth": ("(other >= level ? 1n", "(other > level ? 1n"),
    "mechanisms.js: a missing value never lies at the upper end": ("[STEPS + 1n] : kind", "[STEPS] : kind"),
    "mechanisms.js: a coordinate gets the level of another": (
        "part.reported(index[c], one)",
        "part.reported(index[0], one)",
    ),
    "answer.js: ties go up": ("(twice % span ? 0n : up % 2n)", "0n"),
}
"""Planted in a module of the JavaScript package."""


@pytest.mark.large
@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_in_the_c_port_is_seen(slip: tuple[str, str], tmp_path: Path, known: Known) -> None:
    source = (C_PORT / "hush.c").read_text(encoding="utf-8")
    assert source.count(slip[0]) == 1
    (tmp_path / "hush.c").write_text(source.replace(*slip), encoding="utf-8")
    program = compiled(tmp_path, library=tmp_path / "hush.c", sanitized=False)
    port = Port((str(program),))
    few = known.first(CASES // 3)
    assert differs(port, few)


@pytest.mark.large
@pytest.mark.parametrize("slip", MICROPYTHON_SLIPS.values(), ids=MICROPYTHON_SLIPS.keys())
def test_a_slip_in_the_micropython_port_is_seen(slip: tuple[str, str], tmp_path: Path, known: Known) -> None:
    assert is_seen("cpython", "micropython/hush_micropython.py", slip, tmp_path, known)


@pytest.mark.large
@pytest.mark.parametrize(("where", "slip"), JS_SLIPS.items(), ids=JS_SLIPS.keys())
def test_a_slip_in_the_javascript_port_is_seen(where: str, slip: tuple[str, str], tmp_path: Path, known: Known) -> None:
    assert is_seen("node", f"js/src/{where.partition(':')[0]}", slip, tmp_path, known)


def is_seen(language: str, name: str, slip: tuple[str, str], directory: Path, known: Known) -> bool:
    """Whether the comparison sees a slip that is planted in a port that is not compiled."""
    port = port_of(language, directory, client=planted(directory, name, *slip))
    few = known.first(CASES // 3)
    return differs(port, few)


def differs(port: Port, known: Known) -> bool:
    """Whether any outcome differs. Every eighth case is asked first: that is most often enough."""
    return any(port.ask(known.orders[part::PARTS]) != known.outcomes[part::PARTS] for part in range(PARTS))
