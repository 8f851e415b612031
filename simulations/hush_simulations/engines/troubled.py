"""Troubled: the ways to a broker on which things go wrong, and what liars publish."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hush_client.sending.transport import Transport
from hush_common.mechanisms import Mechanism, Offers, perturb
from hush_common.rng import ReportRng
from hush_common.task import Task
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.scenarios.population import Value
from hush_simulations.scenarios.troubles import Faults, Liars, truthful_count

__all__ = ["Trouble", "forged", "publish_lies"]

_LATENESS_SECONDS = 0.05
_SEED_OF_FAULTS = 1


@dataclass(slots=True)
class Trouble:
    """What goes wrong, drawn for each publication.

    Args:
        faults: how often.
        topic: of reports; nothing else is disturbed.
        seed: of the draws.

    Attributes:
        forgotten: payloads that were acknowledged, and forgotten.
    """

    faults: Faults
    topic: str
    seed: int
    forgotten: int = field(default=0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/{_SEED_OF_FAULTS}")  # noqa: S311 - of the weather, not of a device

    def around(self, transport: Transport) -> Transport:
        """The same way, with faults."""
        if not self.faults:
            return transport
        return FaultyTransport(transport, self._fate, lambda: _LATENESS_SECONDS)

    def _fate(self, topic: str, payload: bytes) -> Fate:  # noqa: ARG002 - whatever is in it
        if not topic.startswith(self.topic):
            return Fate.GOOD
        draw = self._random.random()
        for share, fate in (
            (self.faults.lost, Fate.LOST),
            (self.faults.cut, Fate.CUT),
            (self.faults.late, Fate.LATE),
            (self.faults.twice, Fate.TWICE),
            (self.faults.reordered, Fate.REORDERED),
            (self.faults.forgotten, Fate.FORGOTTEN),
        ):
            if draw < share:
                self.forgotten += fate is Fate.FORGOTTEN
                return fate
            draw -= share
        return Fate.GOOD


async def publish_lies(
    transport: Transport,
    topic: str,
    task: Task,
    round_: int,
    *,
    liars: tuple[Liars, ...],
    values: Sequence[Value],
    rng: ReportRng,
) -> int:
    """Publish what all liars send in a round.

    Args:
        transport: the way to the broker.
        topic: of their reports.
        task: what is asked.
        round_: which round.
        liars: by kind; together the last of the devices.
        values: the true ones of all devices.
        rng: of noise and ids.

    Returns:
        How many different reports that is beyond one for each liar.
    """
    device, different = truthful_count(len(values), liars), 0
    async with transport.connect() as link:
        for some in liars:
            for _ in range(some.among(len(values))):
                for payload in forged(task, round_, some, values[device], rng):
                    await link.publish(topic, payload)
                different += 0 if some.lie == "replay" else some.reports - 1
                device += 1
    return different


def forged(task: Task, round_: int, some: Liars, value: object, rng: ReportRng) -> Iterator[bytes]:
    """What one liar publishes in a round.

    Args:
        task: what is asked; of several epsilons the liar takes the dearest.
        round_: which round.
        some: its kind.
        value: its true one.
        rng: of noise and ids.
    """
    told = value if some.lie == "replay" else some.value
    if some.lie == "replay":
        copies, different = 1 + some.reports, 1
    else:
        copies, different = 1, some.reports
    for _ in range(different):
        report = Report.new(task.report_digest, round_, _body(task, some, told, rng), rng)
        for _ in range(copies):
            yield encode_frame((report,))


def _body(task: Task, some: Liars, told: object, rng: ReportRng) -> tuple[int, ...]:
    randomizer = task.randomizer
    if some.lie == "edge":
        dearest: Mechanism = randomizer.parts[-1] if isinstance(randomizer, Offers) else randomizer
        body = law_of(dearest).extreme_body(dearest)
        return (len(randomizer.parts) - 1, *body) if isinstance(randomizer, Offers) else body
    index = task.domain.complete(task.domain.read(told), rng)
    return perturb(randomizer, index, rng, max(len(task.offers) - 1, 0))
