"""Run: the one account of a finished simulation, and the JSON object that `--json` prints and `result.json` holds."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimate.tallies import fold
from hush_aggregator.result import Result
from hush_common.broker_url import BrokerUrl
from hush_common.epsilon import decimal_text
from hush_common.task import Task
from hush_simulations.brokers.choice import is_external
from hush_simulations.engines.experiment import Drawing, Experiment, Outcome, judged
from hush_simulations.engines.seeded_rng import NOT_PRIVATE, SYSTEM
from hush_simulations.results.instead import planned_document
from hush_simulations.results.rounds import (
    GroupTruth,
    PooledRounds,
    Round,
    found_document,
    groups_document,
    judge,
    mean_of_rounds,
    rate,
    round_document,
    together_document,
    truth_of_rounds,
)
from hush_simulations.results.score import Covered, Score, score, score_of_truth
from hush_simulations.scenarios.population import Observed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished simulation. What represents it in text shows no value, no report and no address.

    Args:
        experiment: what was to be simulated.
        task: as it was published: on a broker of others under an id of its own.
        rounds: one at least, in their order.
        stopped: whether somebody stopped it before all devices had been asked.
        drawing: in bulk, what was drawn; else None.
    """

    experiment: Experiment
    task: Task
    rounds: tuple[Round, ...]
    stopped: bool = False
    drawing: Drawing | None = None

    @classmethod
    def of(cls, experiment: Experiment, outcome: Outcome) -> Self:
        """Judge what came of an experiment."""
        rounds = tuple(judge(experiment, outcome.task, number, done) for number, done in enumerate(outcome.rounds))
        return cls(experiment, outcome.task, rounds, outcome.stopped, outcome.drawing)

    def figure(self, *, dark: bool = False) -> "Figure":
        """The picture that `hush simulate --out` keeps: `run.figure().savefig("heights.png")`.

        Args:
            dark: on a dark ground.
        """
        # By name: results import nothing that shows them, and matplotlib is loaded when a picture is asked for.
        display, style = map(import_module, ("hush_simulations.display.run_figure", "hush_simulations.display.style"))
        found: Figure = display.figure_of(self, style.DARK if dark else style.LIGHT)
        return found

    def __repr__(self) -> str:
        rounds = f" in {len(self.rounds)} rounds" if len(self.rounds) > 1 else ""
        return f"<Run of {self.task.id!r}: {self.accepted} reports{rounds}>"

    @property
    def last(self) -> Round:
        """The last round, which the figures of a run are about."""
        return self.rounds[-1]

    @property
    def result(self) -> Result:
        """Of the last round."""
        return self.last.result

    @property
    def results(self) -> tuple[Result, ...]:
        """Of each round."""
        return tuple(done.result for done in self.rounds)

    @property
    def score(self) -> Score:
        """Of the last round."""
        return self.last.score

    @property
    def truth(self) -> Mapping[str, float]:
        """What the error bars of the last round are about, by target; of categories and vectors see `score.parts`."""
        return self.score.truth

    @property
    def covered(self) -> Covered:
        """Whether they hold it, by target; of categories and vectors, whether the joint ones of all parts do."""
        return self.score.joint if self.score.parts else self.score.covered

    @property
    def together(self) -> PooledRounds | None:
        """All rounds as one estimate; None of one round, and where the rounds repeat the same answers."""
        task, last = self.task, self.last
        tallies = [one.tally or fold(task.randomizer, one.received.bodies) for one in self.rounds]
        made = combine(task, tallies, last.result.confidence)
        if made is None:
            return None
        population = mean_of_rounds([(one.result.n, one.population) for one in self.rounds])
        if last.truth is not None:
            found = score_of_truth(task.domain, made, truth_of_rounds(self.rounds), population)
        else:
            places = [(number, device) for number, one in enumerate(self.rounds) for device in one.reporters]
            values = [self.experiment.value(device, number) for number, device in places]
            found = score(task.domain, made, values, population)
        return PooledRounds(replace(last.result, round=0, estimate=made), found, len(self.rounds))

    @property
    def groups(self) -> Mapping[str, GroupTruth]:
        """Of each group of the population, who of it answered in the last round; empty where there are none."""
        return self.last.groups

    @property
    def clients(self) -> int:
        """Devices."""
        return self.experiment.clients

    @property
    def published(self) -> int:
        """Reports that devices sent in all rounds."""
        return sum(len(done.reporters) for done in self.rounds)

    @property
    def accepted(self) -> int:
        """Reports counted in all rounds."""
        return sum(done.result.n for done in self.rounds)

    @property
    def lost(self) -> int:
        """Reports that the broker acknowledged to a device and never delivered to the aggregator."""
        refused = self.result.refused  # counted per task, all rounds together
        return max(0, self.published - judged(self.accepted, refused))

    @property
    def clamped(self) -> int:
        """Values moved into the domain, in all rounds."""
        return sum(done.clamped for done in self.rounds)

    @property
    def declined(self) -> Mapping[str, int]:
        """Answers that devices declined in all rounds, by reason."""
        return sum((Counter(done.declined) for done in self.rounds), Counter())

    @property
    def elapsed_s(self) -> float:
        """Seconds of all rounds, to a millisecond."""
        return round(sum(done.elapsed for done in self.rounds), 3)

    @property
    def reports_per_s(self) -> float:
        """Reports counted in a second, to a tenth; 0 where no time passed."""
        return rate(self.rounds)

    @property
    def epsilon_spent(self) -> Fraction:
        """The most that one device has spent: what a round costs it, as often as it answered, or all of it at first.

        In bulk what a device spends that answers in every round, whether or not there is one.
        """
        if self.drawing is not None:
            taken = [epsilon for epsilon, count in self.chosen.items() if count]
            return max(taken, default=self.task.epsilon)
        times = np.zeros(self.clients, dtype=np.int64)
        for done in self.rounds:
            times[np.fromiter(done.reporters, np.int64, len(done.reporters))] += 1
        choices = np.array(self.experiment.choices or [0] * self.clients, dtype=np.int64)
        totals = self.task.offers or (self.task.epsilon,)
        pairs = (divmod(int(pair), len(totals)) for pair in np.unique(times * len(totals) + choices))
        cases = [(often, totals[choice]) for often, choice in pairs]
        if self.task.repeat == "sticky":
            return max((total for often, total in cases if often), default=Fraction(0))
        return max((often * total / self.task.rounds for often, total in cases), default=Fraction(0))

    @property
    def chosen(self) -> Mapping[Fraction, int]:
        """How many devices took each of the epsilons offered, in the last round; empty where there is no choice."""
        if self.last.chosen:
            return dict(zip(self.task.offers, self.last.chosen, strict=True))
        if not self.experiment.choices:
            return {}
        taken = Counter(self.experiment.choices[device] for device in self.last.reporters)
        return {epsilon: taken[place] for place, epsilon in enumerate(self.task.offers)}

    @property
    def broker(self) -> str:
        """What it ran over, without a password."""
        if self.experiment.engine != "mqtt":
            return "memory" if self.experiment.engine == "memory" else "none"
        name = self.experiment.broker
        return str(BrokerUrl.parse(name)) if is_external(name) else name

    @property
    def noise(self) -> str:
        """Where the noise came from, in words."""
        return SYSTEM if self.experiment.noise_seed is None and self.drawing is None else NOT_PRIVATE

    def to_document(self) -> dict[str, Any]:
        """Everything but the values and the reports.

        With several rounds, `result`, `truth` and `covered` are those of the last one, `rounds` lists all of them and
        `together` is what they say as one; counts and times are totals.
        """
        document: dict[str, Any] = {
            **found_document(self.last),
            **groups_document(self.last),
            "clients": self.clients,
            "published": self.published,
            "lost": self.lost,
            "declined": dict(self.declined),
            "clamped": self.clamped,
            "epsilon_spent": decimal_text(self.epsilon_spent),
        }
        if self.chosen:
            document["chosen"] = {decimal_text(epsilon): count for epsilon, count in self.chosen.items()}
        if isinstance(people := self.experiment.scenario.population, Observed):
            document["data"] = people.to_document()
        document |= {
            "elapsed_s": self.elapsed_s,
            "reports_per_s": self.reports_per_s,
            "engine": self.experiment.engine,
            "broker": self.broker,
            "connections": 0 if self.drawing else self.experiment.gateways,
            "noise": self.noise,
        }
        if self.drawing is not None:
            document["drawn"] = self.drawing
        if self.experiment.seed is not None:
            document["seed"] = self.experiment.seed
        document |= {"stopped": True} if self.stopped else {}
        best = planned_document(self.task, self.result.n, self.result.confidence)
        document |= {"best_mechanism": best} if best else {}
        if len(self.rounds) > 1:
            document["rounds"] = [round_document(done) for done in self.rounds]
            if together := self.together:
                document["together"] = together_document(together)
        return document
