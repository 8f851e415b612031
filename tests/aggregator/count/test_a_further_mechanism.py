"""A mechanism is one place on either side: two that hush has not go the whole way, with files of their own alone.

Each is registered with the devices and with the aggregator of this process: one line on either side, and none in any
file of hush. What registers nothing answers nothing.
"""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from broker_world import living
from judge import verdict
from rendered import rendered, squeezed
from scripted_broker import ScriptedBroker
from toy import coarse_analysis, kary_analysis
from toy.coarse import Coarse
from toy.kary import KaryResponse

from hush import Run, Scenario, Task
from hush_aggregator import explain
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate import mechanisms as analyses
from hush_aggregator.estimate.mechanisms.analysis import Analysis
from hush_aggregator.explain import alternatives
from hush_aggregator.tally import Tally
from hush_client import Gateway
from hush_common.domain import CategoryDomain, Domain, NumberDomain
from hush_common.errors import TaskError
from hush_common.mechanisms import Laplace, Mechanism, registry
from hush_common.rng import SystemRng
from hush_common.task import decode_task, make_task
from hush_common.topics import task_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json
from hush_simulations.auditing.audit import audit, mechanism_subject
from hush_simulations.display.files import write_files
from hush_simulations.display.table import run_blocks
from hush_simulations.engines.experiment import Experiment, SeededRng
from hush_simulations.engines.live import simulate
from hush_simulations.planning.plan import PlanQuestion, solve
from hush_simulations.scenarios.population import Frequencies, Mixture, Normal, Population

LABELS = ("red", "green", "blue")
COLOURS: dict[str, object] = {"kind": "category", "labels": list(LABELS)}
WEIGHT: dict[str, object] = {"kind": "number", "lower": 40.0, "upper": 140.0, "unit": "kg"}


@dataclass(frozen=True)
class Toy:
    kind: type[Mechanism]
    analysis: Analysis
    domain: dict[str, object]
    plan: Domain
    population: Population
    value: object

    @contextmanager
    def registered(self) -> Iterator[None]:
        with registry.registered(self.kind), analyses.registered(self.kind, self.analysis):
            yield

    def task(self, **changes: object) -> Task:
        return make_task({"id": "t", "epsilon": "2", "mechanism": self.kind.name, "domain": self.domain, **changes})


TOYS = {
    "categories": Toy(
        KaryResponse, kary_analysis, COLOURS, CategoryDomain(LABELS), Frequencies(LABELS, (5, 3, 2)), "green"
    ),
    "a number": Toy(Coarse, coarse_analysis, WEIGHT, NumberDomain(0.0, 1.0), Mixture((Normal(1.0, 80.0, 10.0),)), 80.0),
}


@pytest.fixture(params=TOYS)
def toy(request: pytest.FixtureRequest) -> Toy:
    return TOYS[request.param]


@pytest.mark.large
@pytest.mark.parametrize("offers", [(), ("1", "2")])
async def test_it_goes_from_the_device_to_table_picture_and_files(
    toy: Toy, offers: tuple[str, ...], tmp_path: Path
) -> None:
    with toy.registered():
        scenario = Scenario(dict(json.loads(toy.task(offers=list(offers)).payload)), toy.population)
        values = scenario.population.draw(90, np.random.default_rng(1))
        choices = [number % 2 for number in range(90)] if offers else []
        experiment = Experiment(scenario=scenario, values=values, choices=choices, engine="memory", noise_seed=1)
        run = Run.of(experiment, await simulate(experiment))
        assert run.lost == 0
        result = run.result.to_document()
        assert (result["mechanism"], result["n"], result["refused"]) == (toy.kind.name, 90, {})
        for part in result.get("categories", [result]):
            assert {"reporters", "population", "anytime"} <= part["intervals"].keys()
        shown = rendered(run_blocks(run))
        assert "90 devices" in shown
        assert toy.kind.name in shown
        assert ("%" if toy.kind.is_share else "kg") in shown
        _, reports, picture, _ = write_files(tmp_path, run)
    assert picture.read_bytes().startswith(b"\x89PNG")
    words = {row["decoded"] for row in csv.DictReader(reports.read_text(encoding="utf-8").splitlines())}
    assert words == set(LABELS) if toy.kind.is_share else len(words) == 2 * len(offers or "1")


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


def test_it_stands_in_a_plan_beside_the_others(toy: Toy) -> None:
    question = PlanQuestion(domain=toy.plan, confidence=0.95, people=2000, epsilon=Fraction(1), error=None)
    with toy.registered():
        found = solve(question).to_document()
    lines = {line["mechanism"]: line for line in found["mechanisms"]}
    assert {"mechanism", "reporters", "population"} <= lines[toy.kind.name].keys()
    assert toy.kind.name not in found["auto"].values()
    assert toy.kind.name not in {line["mechanism"] for line in solve(question).to_document()["mechanisms"]}


def test_it_is_explained_beside_the_others(toy: Toy) -> None:
    with toy.registered():
        default = make_task({"id": "t", "epsilon": "1", "domain": toy.domain})
        assert default.mechanism != toy.kind.name
        assert alternatives(default)[toy.kind.name] > 0
        assert toy.kind.name in squeezed(rendered(explain.blocks(toy.task())))


def test_it_is_judged_and_audited(toy: Toy) -> None:
    with toy.registered():
        subject = mechanism_subject(toy.kind.name, Fraction(2), 3, 3, SeededRng(7))
        sides = np.random.default_rng(7).integers(0, 2, 8000).tolist()
        reports = [subject.draw(side) for side in sides]
        measured = audit(sides, reports, subject.views(reports), 0.99)
        part = toy.task().randomizer
        assert isinstance(part, toy.kind)
    assert 1.7 < measured.bound <= 2
    assert verdict(part, range(3) if toy.kind.is_share else (0, 1 << 20)) == "exact"


async def test_a_device_refuses_what_its_own_program_did_not_register(toy: Toy, tmp_path: Path) -> None:
    with toy.registered():
        payload = toy.task().payload
    broker = ScriptedBroker(retained={task_topic("t"): payload})
    with analyses.registered(toy.kind, toy.analysis):  # what an aggregator of the same process knows, no device knows
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            with pytest.raises(TaskError, match=f"mechanism.*{toy.kind.name}"):
                await gateway.report("d", "t", toy.value)
            assert not broker.arrived
            with registry.registered(toy.kind):
                decode_task(payload)
            with pytest.raises(TaskError, match="mechanism"):
                decode_task(payload)


async def test_a_device_that_registered_it_answers(toy: Toy, tmp_path: Path) -> None:
    with registry.registered(toy.kind):
        broker = ScriptedBroker(retained={task_topic("t"): toy.task().payload})
        async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
            receipt = await gateway.report("d", "t", toy.value)
    assert receipt.status == "sent"
    assert len(broker.arrived) == 1


def test_none_of_hush_can_be_replaced(toy: Toy) -> None:
    false = type("False", (Laplace,), {})
    with pytest.raises(ValueError, match="already"), registry.registered(false):
        pass
    with pytest.raises(ValueError, match="already"), analyses.registered(Laplace, toy.analysis):
        pass
    assert registry.named("laplace") is Laplace


def test_it_is_gone_after_its_context_even_when_that_failed(toy: Toy) -> None:
    before = registry.known()
    with pytest.raises(RuntimeError), toy.registered():
        raise RuntimeError
    assert registry.known() == before
    with pytest.raises(TypeError, match="no analysis"):
        analyses.analysis_of(KaryResponse(Fraction(1), 3))
