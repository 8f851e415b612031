"""hush in one name: what a program, a notebook and a device start from.

    import hush

    run = hush.simulate("heights", seed=7)

Names are loaded when they are first used (PEP 562): `import hush` costs what the standard library costs, and a device
that uses `hush.Client` never meets numpy.
"""

from typing import TYPE_CHECKING

from hush_common.errors import HushError, MissingExtraError
from hush_common.lazy import lazy_names, load

if TYPE_CHECKING:
    from hush.version import __version__
    from hush_aggregator.aggregator import Aggregator
    from hush_aggregator.result import Result
    from hush_client.client import Client
    from hush_client.sync import SyncClient
    from hush_simulations.api.simulate import simulate, simulate_async
    from hush_simulations.api.sweep import sweep
    from hush_simulations.results.run import Run
    from hush_simulations.scenarios.scenario import Scenario
    from hush_simulations.scenarios.scenario_file import SCENARIOS
    from hush_simulations.sweeps.result import SweepResult, SweepRow

__all__ = [
    "SCENARIOS",
    "Aggregator",
    "Client",
    "HushError",
    "MissingExtraError",
    "Result",
    "Run",
    "Scenario",
    "SweepResult",
    "SweepRow",
    "SyncClient",
    "__version__",
    "simulate",
    "simulate_async",
    "sweep",
]

_HOMES = {
    "SCENARIOS": "hush_simulations.scenarios.scenario_file",
    "Aggregator": "hush_aggregator.aggregator",
    "Client": "hush_client.client",
    "Result": "hush_aggregator.result",
    "Run": "hush_simulations.results.run",
    "Scenario": "hush_simulations.scenarios.scenario",
    "SweepResult": "hush_simulations.sweeps.result",
    "SweepRow": "hush_simulations.sweeps.result",
    "SyncClient": "hush_client.sync",
    "__version__": "hush.version",
    "simulate": "hush_simulations.api.simulate",
    "simulate_async": "hush_simulations.api.simulate",
    "sweep": "hush_simulations.api.sweep",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__, __dir__ = lazy_names(globals(), _HOMES, load)
