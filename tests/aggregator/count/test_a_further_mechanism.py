"""A mechanism is one place on either side: two that hush has not go the whole way, with files of their own alone.

Each is registered with the devices and with the aggregator of this process: one line on either side, and none in any
file of hush. What registers nothing answers nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from broker_world import living
from judge import verdict
from rendered import rendered, squeezed
from scripted_broker import ScriptedBroker
from toy import coarse_analysis, kary_analysis
from toy.coarse import Coarse
from toy.kary import KaryResponse

import hush
from hush import Task
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate import mechanisms as analyses
from hush_aggregator.estimate.mechanisms.analysis import Analysis
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.publish import explain
from hush_aggregator.publish.explain import alternatives
from hush_client import Gateway
from hush_common.errors import TaskError
from hush_common.mechanisms import Laplace, Mechanism, registry
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.topics import task_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json

LABELS = ["red", "green", "blue"]


@dataclass(frozen=True)
class Toy:
    kind: type[Mechanism]
    analysis: Analysis
    domain: dict[str, object]
    value: object

    @contextmanager
    def registered(self) -> Iterator[None]:
        with registry.registered(self.kind), analyses.registered(self.kind, self.analysis):
            yield

    def task(self, **changes: object) -> Task:
        return make_task({"id": "t", "epsilon": "2", "mechanism": self.kind.name, "domain": self.domain, **changes})


TOYS = {
    "categories": Toy(KaryResponse, kary_analysis, {"kind": "category", "labels": LABELS}, "green"),
    "a number": Toy(Coarse, coarse_analysis, {"kind": "number", "lower": 40.0, "upper": 140.0, "unit": "kg"}, 80.0),
}


@pytest.fixture(params=TOYS)
def toy(request: pytest.FixtureRequest) -> Toy:
    return TOYS[request.param]


@pytest.mark.medium
async def test_it_is_simulated_from_the_device_to_the_result(toy: Toy) -> None:
    data = [toy.value] * 60 + ([LABELS[0]] * 30 if toy.kind.is_share else [100.0] * 30)
    with toy.registered():
        asked = {"domain": toy.domain, "mechanism": toy.kind.name, "epsilon": 2, "engine": "memory"}
        run = await hush.simulate_async(data=data, **asked)  # type: ignore[arg-type]
    assert run.lost == 0
    result = run.result.to_document()
    assert (result["mechanism"], result["n"], result["refused"]) == (toy.kind.name, 90, {})
    for part in result.get("categories", [result]):
        assert {"reporters", "population", "anytime"} <= part["intervals"].keys()


def test_its_estimate_is_that_of_its_law(toy: Toy) -> None:
    with toy.registered():
        task = toy.task()
        assert isinstance(task.randomizer, toy.kind)
        law = task.randomizer.law
        assert law is not None
        no, yes = law.positions
        counts = (20, 50, 30) if toy.kind.is_share else (70, 30)
        made = estimate(task, Tally(100, counts), 0.95)
        with pytest.raises(ValueError, match="tally"):
            estimate(task, Tally(101, counts), 0.95)
    if toy.kind.is_share:
        shares = [float((100 - count) * no + count * yes) / 100 for count in counts]
        assert [part.mean for part in made.parts] == pytest.approx(shares, abs=1e-12)
    else:
        assert made.mean == pytest.approx(40 + float(70 * no + 30 * yes), abs=1e-9)


def test_its_reports_are_counted_and_no_others(toy: Toy, memory_path: Path) -> None:
    with toy.registered(), living(memory_path / "store") as world:
        world.task = task = toy.task(id="heights")
        rng, index = SystemRng(), task.domain.index(toy.value).index
        assert isinstance(task.randomizer, toy.kind)
        made = [Report.new(task.report_digest, 0, task.randomizer.perturb(index, rng), rng) for _ in range(20)]
        forged = [Report.new(task.report_digest, 0, body, rng) for body in ((-1,), (3,), (0, 0))]
        world.serve()
        world.send(encode_frame(made[:10]), *(encode_json("heights", report) for report in made[10:]))
        world.send(*(encode_frame([report]) for report in forged))
        assert (world.n, world.store.refusals("heights")) == (20, {Refusal.OUT_OF_RANGE: 3})


def test_it_is_planned_and_explained_beside_the_others(toy: Toy) -> None:
    with toy.registered():
        found = hush.plan(toy.domain, people=2000, epsilon=1).to_document()
        default = make_task({"id": "t", "epsilon": "1", "domain": toy.domain})
        assert default.mechanism != toy.kind.name
        assert alternatives(default)[toy.kind.name] > 0
        assert toy.kind.name in squeezed(rendered(explain.blocks(toy.task())))
    lines = {line["mechanism"]: line for line in found["mechanisms"]}
    assert {"mechanism", "reporters", "population"} <= lines[toy.kind.name].keys()
    assert toy.kind.name not in found["auto"].values()
    after = hush.plan(toy.domain, people=2000, epsilon=1).to_document()["mechanisms"]
    assert toy.kind.name not in {line["mechanism"] for line in after}


def test_it_is_judged_and_audited(toy: Toy) -> None:
    with toy.registered():
        audit = hush.audit(task=toy.task(), samples=8000, seed=7)
        part = toy.task().randomizer
        assert isinstance(part, toy.kind)
    assert audit.violations == ()
    (bound,) = audit.columns()["at_least"]
    assert isinstance(bound, float)
    assert 1.7 < bound <= 2
    assert verdict(part, range(3) if toy.kind.is_share else (0, 1 << 20)) == "exact"


async def test_only_a_device_that_registered_it_answers(toy: Toy, tmp_path: Path) -> None:
    with toy.registered():
        payload = toy.task().payload
    broker = ScriptedBroker(retained={task_topic("t"): payload})
    with analyses.registered(toy.kind, toy.analysis):  # what an aggregator of the same process knows, no device knows
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            with pytest.raises(TaskError, match=f"mechanism.*{toy.kind.name}"):
                await gateway.report("d", "t", toy.value)
    assert not broker.arrived
    with registry.registered(toy.kind):
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            assert (await gateway.report("d", "t", toy.value)).status == "sent"
    assert len(broker.arrived) == 1


def test_none_of_hush_can_be_replaced_and_a_context_leaves_nothing(toy: Toy) -> None:
    before = registry.known()
    with pytest.raises(ValueError, match="already"), registry.registered(type("False", (Laplace,), {})):
        pass
    with pytest.raises(ValueError, match="already"), analyses.registered(Laplace, toy.analysis):
        pass
    with pytest.raises(RuntimeError), toy.registered():
        raise RuntimeError
    assert (registry.named("laplace"), registry.known()) == (Laplace, before)
    with pytest.raises(TypeError, match="no analysis"):
        analyses.analysis_of(KaryResponse(Fraction(1), 3))
