"""What `hush conform` prints."""

from collections.abc import Iterator

from hush_common.formatting import significant
from hush_common.terminal import Column, Renderable, Row, Sentence, Styled, Table
from hush_conform.findings import CheckVerdict, Conformance, Status

_STYLES: dict[Status, str] = {"passed": "green", "failed": "red", "not supported": "dim"}
_SHOWN = 3  # faults of one rule
_STYLES |= {"not judged": "dim", "not run": "dim"}


def conformance_blocks(done: Conformance) -> Iterator[Renderable]:
    """Yield a line for each check, what is wrong and what to do, and the verdict."""
    yield Sentence("")
    rows = [_row(finding) for finding in done.findings]
    yield Table([Column("check"), Column("result"), Column("a device that passes"), Column("s", right=True)], rows)
    for finding in done.findings:
        if finding.faults:
            yield from _broken(finding)
    yield Sentence("")
    for finding in done.findings:
        yield from (Sentence(f"{finding.check}: {remark}.", "dim", hanging=2) for remark in finding.remarks)
        if finding.status == "passed":
            words = f"{finding.check} would have found {finding.finds}; it would have missed {finding.misses}"
            yield Sentence(f"{words}.", "dim", hanging=2)
    yield Sentence("")
    if done.missing:
        yield Sentence(f"Required, but not supported: {', '.join(done.missing)}.", "red", hanging=2)
    yield Sentence(_verdict(done), "green" if done.passed else "red", hanging=2)
    yield Sentence("")


def _row(finding: CheckVerdict) -> Row:
    seconds = significant(finding.seconds, 2) if finding.seconds else ""
    return Row([finding.check, Styled(finding.status, _STYLES[finding.status]), finding.title, seconds])


def _broken(finding: CheckVerdict) -> Iterator[Renderable]:
    """Yield the faults of a check, by the rule that they break."""
    yield Sentence("")
    yield Sentence(f"{finding.check}: {finding.title}", "bold", hanging=2)
    for rule in dict.fromkeys(fault.rule for fault in finding.faults):
        found = [fault.what for fault in finding.faults if fault.rule is rule]
        yield from (Sentence(f"- {what}.", "red", hanging=2) for what in found[:_SHOWN])
        if len(found) > _SHOWN:
            yield Sentence(f"- and {len(found) - _SHOWN} more like these; --json has all of them.", "red", hanging=2)
        yield Sentence(f"Why it matters: {rule.why}.", indent=4, hanging=2)
        yield Sentence(f"What to do: {rule.remedy}.", indent=4, hanging=2)


def _verdict(done: Conformance) -> str:
    passed, failed, not_judged = (
        sum(finding.status == status for finding in done.findings) for status in ("passed", "failed", "not judged")
    )
    if done.passed and not_judged:
        few = f"{not_judged} {'was' if not_judged == 1 else 'were'} not judged"
        return f"Conforms, as far as it was judged: {passed} checks found no fault, and {few}."
    if done.passed:
        return f"Conforms: {passed} checks found no fault. That does not prove that there is none."
    if not failed and not done.missing:
        return "Not judged: no check came to a result."
    return f"Does not conform: {failed} of {len(done.findings)} checks failed."
