"""What `hush conform` prints: at every width, whole, with the remedy of each fault."""

import pytest

from hush_common.terminal import Screen
from hush_conform.findings import CheckVerdict, Conformance, Rule, RuleViolation
from hush_conform.table import conformance_blocks

FAULTS = tuple(RuleViolation(Rule.REFUSES, f"answered hostile task {number}") for number in range(5))
DONE = Conformance(
    "./thermometer",
    (
        CheckVerdict("answers", "answers a task once", "passed", (), ("it keeps running",), 1.25),
        CheckVerdict("hostile", "refuses illegal tasks", "failed", FAULTS, (), 20.0),
        CheckVerdict("rounds", "answers each round once", "not supported"),
    ),
    missing=("rounds",),
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_rule_has_its_remedy_once_and_every_line_fits(width: int) -> None:
    lines = [line for block in conformance_blocks(DONE) for line in block.lines(Screen(width))]
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert text.count(Rule.REFUSES.remedy) == text.count(Rule.REFUSES.why) == 1
    assert "hostile task 2" in text
    assert "hostile task 3" not in text  # the first three, and how many more
    assert "2 more" in text
    assert "1 of 3" in text


def test_the_document_has_every_fault_and_the_verdict() -> None:
    document = DONE.to_document()
    assert (document["passed"], document["missing"], document["program"]) == (False, ["rounds"], "./thermometer")
    findings = document["findings"]
    assert isinstance(findings, list)
    assert [len(one["faults"]) for one in findings] == [0, 5, 0]
    assert set(findings[1]["faults"][0]) == {"rule", "what", "why", "remedy"}


def test_it_conforms_only_if_something_passed_and_nothing_is_missing() -> None:
    passed, open_ = CheckVerdict("answers", "", "passed"), CheckVerdict("noise", "", "not judged")
    assert Conformance("x", (passed, open_)).passed
    assert not Conformance("x", (passed,), missing=("recalls",)).passed
    assert not Conformance("x", (open_,)).passed
