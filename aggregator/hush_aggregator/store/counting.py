"""What every store does to count a batch, but for how it finds and writes reports."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import Accepted, CommitOutcome, Round, note_sender, only_sender
from hush_aggregator.store.lsm import Keys, Section, sort_sections
from hush_common.wire import Refusal


class Counted(NamedTuple):
    """Reports counted, duplicate, and over a quota; the sender of the last, None for several."""

    new: int
    again: int
    over: int = 0
    sender: str | None = None


class SenderCharges(Protocol):
    """Charges the senders of one batch."""

    def has_left(self, digest: bytes, round_: int, sender: str) -> bool:
        """Whether one more report of this sender may count."""

    def charge(self, digest: bytes, round_: int, sender: str) -> None:
        """Charge a sender that has some left for a report that is new."""


def count_batch(
    accepted: Sequence[Accepted],
    refused: Mapping[tuple[str, Refusal], int],
    *,
    closed: Callable[[Sequence[Round]], Collection[Round]],
    count_known: Callable[[Sequence[Accepted]], Sequence[int]],
    count: Callable[[Sequence[Accepted]], Sequence[Counted]],
    add_refusals: Callable[[Iterable[tuple[str, str, int]]], object],
) -> CommitOutcome:
    """Count a batch inside a transaction, see `Store.commit`.

    Args:
        accepted: what admission let through.
        refused: what it did not, by (task id or `UNKNOWN`, reason).
        closed: which of these rounds a mark closes, as it is in this transaction.
        count_known: how many reports of each are counted already.
        count: store what is new and within the quotas, and add it to the tallies.
        add_refusals: add to the counters of (task, reason).
    """
    counted_by_task: Counter[str] = Counter()
    refusals = Counter(refused)
    senders: dict[tuple[str, Refusal], str | None] = {}
    # Marks are read here, where nobody can set one between: a clock that goes back opens nothing again.
    over = closed([(reports.task.digest, reports.round) for reports in accepted])
    late: list[Accepted] = []
    open_: list[Accepted] = []
    for reports in accepted:
        (late if reports.late or (reports.task.digest, reports.round) in over else open_).append(reports)
    for reports, again in zip(late, count_known(late), strict=True):
        refusals[reports.task.id, Refusal.CLOSED] += len(reports.ids) - again
        refusals[reports.task.id, Refusal.DUPLICATE] += again
    for reports, done in zip(open_, count(open_), strict=True):
        task_id = reports.task.id
        counted_by_task[task_id] += done.new
        refusals[task_id, Refusal.DUPLICATE] += done.again
        if done.over:
            refusals[task_id, Refusal.QUOTA] += done.over
            note_sender(senders, (task_id, Refusal.QUOTA), done.sender)
    refusals = +refusals
    add_refusals([(task, reason.value, number) for (task, reason), number in sorted(refusals.items())])
    by_reason: Counter[Refusal] = Counter()
    for (_, reason), number in refusals.items():
        by_reason[reason] += number
    changed = {reports.task.id for reports in accepted} | {task for task, _ in refusals}
    counted_by_task = +counted_by_task
    return CommitOutcome(counted_by_task.total(), by_reason, frozenset(changed), refusals, senders, counted_by_task)


def are_first(keys: Keys) -> NDArray[np.bool_]:
    """Return which keys are the first of their equals."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.empty(len(keys), dtype=np.bool_)
    first[order] = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    return first


def split(flags: NDArray[np.bool_], keys: Sequence[Keys]) -> list[NDArray[np.bool_]]:
    """Return the flags of each of these keys, which were joined."""
    return np.split(flags, np.cumsum([len(some) for some in keys])[:-1])


def charge(
    accepted: Sequence[Accepted],
    keys: Sequence[Keys],
    known: Sequence[NDArray[np.bool_]],
    flags: Sequence[NDArray[np.bool_]],
    charging: SenderCharges,
) -> list[Counter[str]]:
    """Set the flags of what is new and within the quotas; return how many of each sender were beyond.

    One after the other, in the order of receipt: of two with one id the second counts where the sender of the first has
    no quota left. What has no sender is not charged.
    """
    over, counted_keys = [], set[bytes]()
    for reports, some, stored, new in zip(accepted, keys, known, flags, strict=True):
        beyond, place = Counter[str](), (reports.task.digest, reports.round)
        names: Sequence[str | None] = reports.senders or [None] * len(some)
        for k, (key, is_stored, sender) in enumerate(zip(some.tolist(), stored.tolist(), names, strict=True)):
            new[k] = False
            if is_stored or key in counted_keys:
                continue
            if sender is not None and not charging.has_left(*place, sender):
                beyond[sender] += 1
                continue
            new[k] = True
            counted_keys.add(key)
            if sender is not None:
                charging.charge(*place, sender)
        over.append(beyond)
    return over


def counted(flags: Sequence[NDArray[np.bool_]], over: Sequence[Counter[str]] | None) -> list[Counted]:
    """Return what became of each, from the flags of what is new, and from what was beyond quotas."""
    found = []
    for some, names in zip(flags, over or [Counter[str]()] * len(flags), strict=True):
        new, beyond = int(np.count_nonzero(some)), names.total()
        found.append(Counted(new, len(some) - new - beyond, beyond, only_sender([*names])))
    return found


def sort_new(keys: Sequence[Keys], accepted: Sequence[Accepted], flags: Sequence[NDArray[np.bool_]]) -> list[Section]:
    """Return what is new, sorted, by the width of the bodies."""
    by_width = defaultdict[int, list[Section]](list)
    for some, reports, new in zip(keys, accepted, flags, strict=True):
        if new.any():
            bodies = reports.bodies[new].astype(np.int64, copy=False)
            by_width[reports.bodies.shape[1]].append(Section(some[new], bodies))
    return [sort_sections(by_width[width]) for width in sorted(by_width)]


def fold_new(accepted: Sequence[Accepted], flags: Sequence[NDArray[np.bool_]]) -> dict[Round, Tally]:
    """Return the tally of what is new in each round."""
    folded: dict[Round, Tally] = {}
    for reports, new in zip(accepted, flags, strict=True):
        if not new.any():
            continue
        bodies = reports.bodies if new.all() else reports.bodies[new]
        tally = fold(reports.task.randomizer, bodies.astype(np.int64, copy=False))
        key = reports.task.digest, reports.round
        folded[key] = folded[key].merge(tally) if key in folded else tally
    return folded
