"""Every mechanism goes the whole way: report, frame, admission, store, estimate, document."""

import json
from pathlib import Path

import numpy as np
import pytest
from broker_world import START, living
from rendered import rendered, squeezed

from hush import Task
from hush_aggregator import Result
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.result import encode
from hush_aggregator.publish.explain import blocks, expected_error, meaning
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.wire import Refusal, Report, encode_frame, encode_json

NUMBER = {"kind": "number", "lower": -2.0, "upper": 3.0}
LABELS = [f"label {k}" for k in range(40)]
POINT = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]}
TABLE = {"positions": [-1, 2], "unit": 1, "weights": [[2, 1], [1, 2]]}


def task(**fields: object) -> Task:
    return make_task({"id": "heights", "epsilon": "1", **fields})


CASES: dict[str, tuple[Task, object, list[tuple[int, ...]]]] = {
    "laplace": (task(domain=NUMBER), 1.0, [(1 << 40,), (0, 0)]),
    "bit": (task(domain={"kind": "bit"}), True, [(2,), (-1,)]),
    "multilevel": (task(domain=NUMBER, mechanism="multilevel", levels=3), 1.0, [(4,), (-1,)]),
    "table": (task(domain=NUMBER, mechanism="table", table=TABLE), 1.0, [(2,), (-1,)]),
    "category": (task(domain={"kind": "category", "labels": LABELS}), "label 3", [(0, 0), (1, 1 << 8), (1,)]),
    "vector": (task(domain=POINT, sampled=2), [0, 0.5, 1], [(1, 0, 0, 0), (0, 0, 3, 0), (0, 2, 1, 0), (0, 0)]),
    "two epsilons": (task(domain=NUMBER, offers=["0.5", "1"]), 1.0, [(2, 0), (-1, 0), (0,)]),
}
"""Task, a value, and bodies that no honest device sends."""


@pytest.mark.parametrize("name", CASES)
def test_honest_reports_are_counted_and_others_are_out_of_range(name: str, memory_path: Path) -> None:
    asked, value, bad = CASES[name]
    rng, index = SystemRng(), asked.domain.index(value)
    bodies = [asked.perturb(index, rng, k % (len(asked.offers) or 1)) for k in range(30)]
    reports = [Report.new(asked.report_digest, 0, body, rng) for body in bodies]
    with living(memory_path / "store") as world:
        world.task = asked
        world.serve()
        world.send(encode_frame(reports[:20]), *(encode_json("heights", report) for report in reports[10:]))
        world.send(*(encode_frame([Report.new(asked.report_digest, 0, body, rng)]) for body in bad))
        world.wait(3)
        tally = world.store.tally(asked.digest, 0)
        assert tally == fold(asked.randomizer, np.array(bodies, dtype=np.int64))
        refused = {Refusal.OUT_OF_RANGE: len(bad), Refusal.DUPLICATE: 10}
        assert world.store.refusals("heights") == refused
        result = Result(asked, 0, estimate(asked, tally, 0.95), {}, 0.95, START).to_document()
        assert result["n"] == world.estimate["n"] == 30
        assert json.loads(encode(result)) == result


def text(asked: Task) -> str:
    return squeezed(rendered(blocks(asked)))


@pytest.mark.parametrize("name", CASES)
def test_the_meaning_of_every_task_can_be_told(name: str) -> None:
    asked, _, _ = CASES[name]
    told = text(asked)
    assert asked.mechanism in told
    assert json.loads(json.dumps(meaning(asked)))["expected_error"]["100"] == expected_error(asked, 100)
    assert expected_error(asked, 100) == pytest.approx(10 * expected_error(asked, 10_000))


@pytest.mark.parametrize(
    ("name", "words"),
    [("category", ["40", *LABELS]), ("vector", ["x", "y", "z", "%"]), ("two epsilons", ["0.5", "1"])],
)
def test_a_person_reads_what_is_asked(name: str, words: list[str]) -> None:
    assert [word for word in words if word not in text(CASES[name][0])] == []
