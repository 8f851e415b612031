"""The contract of a store, of each kind: each report is counted once, each batch as a whole or not at all."""

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import StorePlace

from hush import Task
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store import UNKNOWN, Accepted, Limits, Origin, Owner, TaskRow, TaskState
from hush_aggregator.store.base import ServedStore
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS, WEIGHTS = (make_task({"id": name, "epsilon": "1", "domain": NUMBER}) for name in ("heights", "weights"))
SMALLEST, LARGEST = -(2**63), 2**63 - 1


@pytest.fixture
def store(place: StorePlace) -> Iterator[ServedStore]:
    with place.open() as store:
        yield store


def accepted(*reports: tuple[int, int], task: Task = HEIGHTS, round_: int = 0) -> Accepted:
    """Reports (number of the id, body)."""
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number, _ in reports), dtype="V16")
    return Accepted(task, round_, ids, np.array([[body] for _, body in reports], dtype=np.int64))


def totals(store: ServedStore, task: Task = HEIGHTS, round_: int = 0) -> tuple[int, ...]:
    """Count, sum and sum of squares."""
    tally = store.tally(task.digest, round_)
    return (tally.n, *(tally.moments[:2] or (0, 0)))


def commit(store: ServedStore, *reports: Accepted) -> tuple[int, dict[Refusal, int]]:
    outcome = store.commit(reports, {})
    return outcome.accepted, dict(outcome.refused)


def test_reports_are_counted_and_folded(store: ServedStore) -> None:
    outcome = store.commit([accepted((1, 10), (2, -20))], {(UNKNOWN, Refusal.MALFORMED): 3})
    assert (outcome.accepted, outcome.refused) == (2, {Refusal.MALFORMED: 3})
    assert outcome.changed == {"heights", UNKNOWN}
    assert totals(store) == (2, -10, 500)
    assert store.refusals(UNKNOWN) == {Refusal.MALFORMED: 3}


def test_what_was_never_counted_is_empty(store: ServedStore) -> None:
    assert store.tally(bytes(32), 5) == Tally()
    assert store.refusals("heights") == {}
    assert store.latest_round(bytes(32)) == 0
    assert store.commit([], Counter()).changed == frozenset()


def test_of_equal_ids_the_first_received_counts(store: ServedStore) -> None:
    reports = [(number, 10**k) for k, number in enumerate([7, 3, 200, 3, 7, 1, 3])]
    assert commit(store, accepted(*reports[:4]), accepted(*reports[4:])) == (4, {Refusal.DUPLICATE: 3})
    kept = {int.from_bytes(report.id): report.body[0] for report in store.reports(HEIGHTS.digest, 0)}
    assert kept == {7: 1, 3: 10, 200: 100, 1: 10**5}
    assert totals(store) == (4, sum(kept.values()), sum(body**2 for body in kept.values()))


def test_a_batch_with_one_known_report_counts_all_others_once(store: ServedStore) -> None:
    commit(store, accepted((50, 1)))
    assert commit(store, accepted(*((number, 2) for number in range(100)))) == (99, {Refusal.DUPLICATE: 1})
    assert totals(store) == (100, 1 + 99 * 2, 1 + 99 * 4)
    assert sum(1 for _ in store.reports(HEIGHTS.digest, 0)) == 100


def test_a_replay_is_a_duplicate_even_after_a_restart(place: StorePlace) -> None:
    with place.open() as store:
        commit(store, accepted((1, 10), (2, 20)))
        assert commit(store, accepted((2, 20), (3, 30))) == (1, {Refusal.DUPLICATE: 1})
    with place.open() as store:
        assert commit(store, accepted((3, 30), (1, 10))) == (0, {Refusal.DUPLICATE: 2})
        assert totals(store) == (3, 60, 1400)
        assert store.refusals("heights") == {Refusal.DUPLICATE: 3}


def test_the_same_id_in_another_round_or_task_is_another_report(store: ServedStore) -> None:
    assert commit(store, accepted((1, 10)), accepted((1, 20), round_=7), accepted((1, 30), task=WEIGHTS))[0] == 3
    assert totals(store, HEIGHTS, 7) == (1, 20, 400)
    assert store.latest_round(HEIGHTS.digest) == 7
    assert store.latest_round(WEIGHTS.digest) == 0
    for other in (b"\0" * 8, b"\xff" * 8):
        assert (store.latest_round(other), store.tally(other, 7)) == (0, Tally())


def test_sums_beyond_64_bits_stay_exact(place: StorePlace) -> None:
    with place.open() as store:
        commit(store, accepted(*((k, LARGEST) for k in range(5))))
        commit(store, accepted(*((k, LARGEST) for k in range(5, 9))))
    with place.open() as store:
        assert totals(store) == (9, 9 * LARGEST, 9 * LARGEST * LARGEST)


BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(SMALLEST, LARGEST)), max_size=8), max_size=6)


@pytest.mark.large
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_n_is_the_number_of_ids_whatever_is_delivered_again(
    batches: list[list[tuple[int, int]]], place: StorePlace
) -> None:
    first: dict[int, int] = {}
    task = make_task({"id": f"t{secrets.token_hex(6)}", "epsilon": "1", "domain": NUMBER})  # of each example
    before_all = len(place.ids()) if place.is_there() else 0
    with place.open() as store:
        for batch in batches:
            before = len(first)
            for number, body in batch:
                first.setdefault(number, body)
            outcome = store.commit([accepted(*batch, task=task)] if batch else [], {})
            assert outcome.accepted == len(first) - before
            assert outcome.accepted + outcome.refused.get(Refusal.DUPLICATE, 0) == len(batch)
        bodies = first.values()
        assert totals(store, task) == (len(first), sum(bodies), sum(k * k for k in bodies))
    assert len(place.ids()) - before_all == len(first)


@pytest.mark.medium
def test_hundreds_of_tasks_in_one_batch_have_their_own_tallies(store: ServedStore) -> None:
    tasks = [make_task({"id": f"t{k}", "epsilon": "1", "domain": NUMBER}) for k in range(420)]
    for body in (1, 2, 3):
        batch = [accepted((body, body), task=task) for task in tasks]
        assert commit(store, *batch, *batch[:100]) == (420, {Refusal.DUPLICATE: 100})
    assert {totals(store, task) for task in tasks} == {(3, 6, 14)}


def test_the_first_task_under_an_id_stays(place: StorePlace) -> None:
    other = make_task({"id": "heights", "epsilon": "2", "domain": NUMBER})
    with place.open() as store:
        assert [store.add_task(task) for task in (HEIGHTS, HEIGHTS, other)] == [HEIGHTS.payload] * 3
    with place.open() as store:
        assert store.tasks() == [HEIGHTS.payload]


def test_who_gives_a_task_that_had_only_appeared_is_stored(store: ServedStore) -> None:
    row = TaskRow("heights", HEIGHTS.digest, HEIGHTS.payload, Origin.BROKER, TaskState.OPEN, "", 0, "")
    for origin, kept in ((Origin.BROKER, Origin.BROKER), (Origin.FILE, Origin.FILE), (Origin.BROKER, Origin.FILE)):
        store.add_task(HEIGHTS, origin)
        assert store.task_rows() == [replace(row, origin=kept)]


def test_an_owner_is_kept_unless_a_command_took_the_task_over_since(store: ServedStore) -> None:
    store.add_tasks([HEIGHTS, WEIGHTS])
    store.set_owners([Owner("heights", "a" * 32, 1), Owner("weights", "b" * 32, 2, taken_from="c" * 32)])
    store.set_owners(
        [Owner("heights", "d" * 32, 3, was_taken_from=""), Owner("weights", "d" * 32, 3, was_taken_from="")]
    )
    found = [(row.owner, row.term, row.taken_from) for row in store.task_rows()]
    assert found == [("d" * 32, 3, ""), ("b" * 32, 2, "c" * 32)]


def test_a_second_aggregator_is_refused_until_the_first_has_left(place: StorePlace) -> None:
    with place.open() as store:
        with pytest.raises(StoreError, match="another aggregator"):
            place.open()
        commit(store, accepted((1, 10)))
    place.open().close()


def test_a_store_may_be_read_while_it_counts(store: ServedStore, place: StorePlace) -> None:
    commit(store, accepted((1, 10)))
    assert len(place.ids()) == 1
    assert commit(store, accepted((2, 10)))[0] == 1


def test_a_command_writes_a_store_in_use_and_its_aggregator_sees_it(store: ServedStore, place: StorePlace) -> None:
    before = store.changes()
    store.add_task(HEIGHTS)
    assert store.changes() == before  # what it writes itself is not a change
    with place.edit() as command:
        command.set_state("heights", TaskState.WITHDRAWN)
    assert store.changes() != before
    assert store.task_rows()[0].state is TaskState.WITHDRAWN


def test_every_store_has_its_own_names_that_stay(place: StorePlace) -> None:
    names = []
    for _ in range(2):
        with place.open() as store, place.read() as reader:
            names.append((store.identity, store.public_identity))
            assert reader.public_identity == store.public_identity
    assert names[0] == names[1]
    secret, public = names[0]
    assert secret != public  # the name that estimates bear does not open the session on the broker
    assert [len(bytes.fromhex(name)) for name in names[0]] == [16, 16]


# Quotas


def batch(*numbers: int, sender: str | tuple[str, ...] = "kitchen", round_: int = 0) -> Accepted:
    """Reports with these ids."""
    ids = np.frombuffer(b"".join(number.to_bytes(16) for number in numbers), dtype="V16")
    names = (sender,) * len(numbers) if isinstance(sender, str) else sender
    return Accepted(HEIGHTS, round_, ids, np.ones((len(numbers), 1), dtype=np.int64), senders=names)


def with_quota(place: StorePlace, each: int = 3, **gateways: int) -> ServedStore:
    store = place.open(Limits(each, gateways))
    store.add_task(HEIGHTS)
    return store


def test_no_sender_counts_beyond_its_quota_and_others_are_untouched(place: StorePlace) -> None:
    with with_quota(place, house=5) as store:
        assert commit(store, batch(1, 2)) == (2, {})
        assert commit(store, batch(3, 4, 5)) == (1, {Refusal.QUOTA: 2})
        assert commit(store, batch(6)) == (0, {Refusal.QUOTA: 1})
        mixed = batch(*range(10, 18), sender=("meter-3", "kitchen") * 4)
        assert commit(store, mixed) == (3, {Refusal.QUOTA: 5})
        assert commit(store, batch(*range(20, 30), sender="house")) == (5, {Refusal.QUOTA: 5})
        assert commit(store, batch(*range(30, 34), round_=1)) == (3, {Refusal.QUOTA: 1})
        assert store.tally(HEIGHTS.digest, 0).n == len(list(store.reports(HEIGHTS.digest, 0))) == 11
        assert store.refusals("heights") == {Refusal.QUOTA: 14}


def test_the_log_can_name_who_is_over_its_quota_if_it_is_one(place: StorePlace) -> None:
    with with_quota(place, 1) as store:
        for numbers in ((1, 2), (3, 4)):
            assert store.commit([batch(*numbers)], {}).senders == {("heights", Refusal.QUOTA): "kitchen"}
        several = batch(5, 6, 7, 8, sender=("a", "b", "a", "b"))
        assert store.commit([several], {}).senders == {("heights", Refusal.QUOTA): None}


def test_a_duplicate_costs_no_quota(place: StorePlace) -> None:
    with with_quota(place) as store:
        assert commit(store, batch(1, 2)) == (2, {})
        for _ in range(5):
            assert commit(store, batch(1, 2)) == (0, {Refusal.DUPLICATE: 2})
        assert commit(store, batch(2, 3, 3, 1)) == (1, {Refusal.DUPLICATE: 3})
        assert commit(store, batch(1, 2, 3, 4)) == (0, {Refusal.DUPLICATE: 3, Refusal.QUOTA: 1})


def test_of_one_id_the_second_counts_if_the_first_has_no_quota_left(place: StorePlace) -> None:
    with with_quota(place, 1) as store:
        both = batch(1, 2, 2, 2, sender=("meter-3", "meter-3", "house-4", "kitchen"))
        assert commit(store, both) == (2, {Refusal.QUOTA: 1, Refusal.DUPLICATE: 1})
        assert store.tally(HEIGHTS.digest, 0).n == 2
        assert commit(store, batch(2, 3, sender="house-4")) == (0, {Refusal.DUPLICATE: 1, Refusal.QUOTA: 1})
