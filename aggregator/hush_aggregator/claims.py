"""Claims: whose a retained estimate says it is, and whether this store may publish there.

An estimate names the store that it was made from (`store`), and how that store came to publish it: `term` is 0 where
nobody had, 1 or more once that store was found to be the owner again, and one more than the last whenever another store
takes it over on purpose, which names the last one (`taken_from`). Of two stores that both believe to be the owner the
higher term is right, and of equal ones the smaller name: both see the same, so exactly one of them yields.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hush_aggregator.result import encode
from hush_aggregator.store.base import TaskRow
from hush_common.untrusted import ESTIMATE, read_json

__all__ = ["TAKE_OVER", "Claim", "Verdict", "claim_of", "judged", "outranks", "signature", "signed", "written"]

TAKE_OVER = "?"
"""What stands in `TaskRow.taken_from` once an operator wants it, until the aggregator has seen from whom."""

_STORE = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HIGHEST = 2**53 - 1  # the last integer that every reader of JSON has
_MANY = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What an estimate says of itself; whatever it leaves out is empty or 0.

    Args:
        store: identity of the store; empty if it names none, as before there was a name, or is no estimate at all.
        term: see above.
        taken_from: identity of the store before it, if it was taken over.
        digest: of its task, in hexadecimal digits.
        round: which round it is of.
        n: reports counted in it.
    """

    store: str = ""
    term: int = 0
    taken_from: str = ""
    digest: str = ""
    round: int = 0
    n: int = 0


class Verdict(Enum):
    """Whether a store owns what is published of a task, and if not, why: with what to do."""

    MINE = ""
    OTHERS_ESTIMATE = "the estimate there is that of another store, {there}"
    OTHERS_FIGURES = (
        "the estimate there names no store and is not made from this one: it has another digest, or more reports"
    )
    OTHERS_TASK = "another task is published under this id, digest {task}, where this store has {digest}"
    REMEMBERED = "it was that of another store, {there}, when it was seen last"
    UNSEEN = (
        "a message to hush/v1/estimates/… did not come back, so that nobody knows whose estimate is there; allow this "
        "user to write and to read hush/v1/estimates/+"
    )


def claim_of(payload: bytes) -> Claim:
    """What a message on the topic of an estimate claims; never raises, whatever it is."""
    try:
        document = read_json(payload, ESTIMATE)
    except ValueError:
        return Claim()
    if not isinstance(document, dict):
        return Claim()
    store, digest = document.get("store"), document.get("digest")
    term, taken_from = _count(document.get("term"), _HIGHEST), document.get("taken_from")
    named = "" if term is None else _name(store, _STORE)
    return Claim(
        named,
        (term or 0) if named else 0,
        _name(taken_from, _STORE),
        _name(digest, _DIGEST),
        _count(document.get("round"), _MANY) or 0,
        _count(document.get("n"), _MANY) or 0,
    )


def _name(value: object, legal: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and legal.fullmatch(value) else ""


def _count(value: object, most: int) -> int | None:
    """0 where there is none, None where it is no count."""
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def outranks(one: Claim, other: Claim) -> bool:
    """Whether the store of `one` is the owner, and not that of `other`, where both believe to be."""
    return bool(one.store) and (one.term, other.store) > (other.term, one.store)


def judged(row: TaskRow, me: str, task: bytes | None, estimate: Claim | None, counted: int, *, seen: bool) -> Verdict:
    """Whether this store is the owner, from what is retained when the aggregator connects.

    Args:
        row: the task as the store has it.
        me: identity of the store.
        task: digest of what is retained on the topic of the task; None for nothing.
        estimate: what is retained on that of the estimate; None for nothing.
        counted: reports that this store has of the round of that estimate.
        seen: whether nothing means that nothing is there, and not that it must not be read.
    """
    own = row.digest.hex()
    if row.taken_from == TAKE_OVER:
        return Verdict.MINE
    if estimate is not None and estimate.store:
        return Verdict.MINE if (estimate.store, estimate.digest) == (me, own) else Verdict.OTHERS_ESTIMATE
    if estimate is not None:
        return Verdict.MINE if estimate.digest == own and counted >= estimate.n else Verdict.OTHERS_FIGURES
    if row.owner not in ("", me):
        return Verdict.REMEMBERED
    if task is not None and task != row.digest:
        return Verdict.OTHERS_TASK
    return Verdict.MINE if seen or row.owner == me else Verdict.UNSEEN


def signature(row: TaskRow, me: str, estimate: Claim | None) -> Claim:
    """What the estimates of an owner say from now on: see the module.

    Args:
        row: the task as the store has it.
        me: identity of the store.
        estimate: what is retained; None for nothing.
    """
    there = estimate or Claim()
    if row.taken_from == TAKE_OVER:
        others = [(claim.term, claim.store) for claim in (there, Claim(row.owner, row.term)) if claim.store != me]
        last, before = max(others, default=(0, ""))
        return Claim(me, min(max(last, there.term, row.term) + 1, _HIGHEST), before)
    established = row.owner == me or estimate is not None
    term = max(row.term, there.term, int(established))
    return Claim(me, term, row.taken_from if row.owner == me else "")


def signed(estimate: bytes, claim: Claim) -> bytes:
    """An estimate of this store, with the claim that it makes now."""
    document = json.loads(estimate)
    document.pop("taken_from", None)
    return encode({**document, **written(claim)})


def written(claim: Claim) -> Mapping[str, str | int]:
    """The fields of an estimate that make this claim."""
    fields: dict[str, str | int] = {"store": claim.store, "term": claim.term}
    return fields | ({"taken_from": claim.taken_from} if claim.taken_from else {})
