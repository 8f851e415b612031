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
    from hush_aggregator.estimate.result import Result
    from hush_client.client import Client
    from hush_client.sync import SyncClient
    from hush_common.task import Task
    from hush_simulations.api.audit import audit
    from hush_simulations.api.planning import feasible, plan
    from hush_simulations.api.simulate import simulate, simulate_async
    from hush_simulations.api.sweep import sweep
    from hush_simulations.auditing.audit import Audit
    from hush_simulations.planning.feasibility import Feasibility
    from hush_simulations.planning.plan import Plan
    from hush_simulations.results.run import Run
    from hush_simulations.scenarios.scenario import Scenario
    from hush_simulations.scenarios.scenario_file import SCENARIOS
    from hush_simulations.sweeps.result import SweepResult, SweepRow

__all__ = [
    "SCENARIOS",
    "Aggregator",
    "Audit",
    "Client",
    "Feasibility",
    "HushError",
    "MissingExtraError",
    "Plan",
    "Result",
    "Run",
    "Scenario",
    "SweepResult",
    "SweepRow",
    "SyncClient",
    "Task",
    "__version__",
    "audit",
    "feasible",
    "plan",
    "simulate",
    "simulate_async",
    "sweep",
]

_HOMES = {
    "SCENARIOS": "hush_simulations.scenarios.scenario_file",
    "Aggregator": "hush_aggregator.aggregator",
    "Audit": "hush_simulations.auditing.audit",
    "Client": "hush_client.client",
    "Feasibility": "hush_simulations.planning.feasibility",
    "Plan": "hush_simulations.planning.plan",
    "Result": "hush_aggregator.estimate.result",
    "Run": "hush_simulations.results.run",
    "Scenario": "hush_simulations.scenarios.scenario",
    "SweepResult": "hush_simulations.sweeps.result",
    "SweepRow": "hush_simulations.sweeps.result",
    "SyncClient": "hush_client.sync",
    "Task": "hush_common.task",
    "__version__": "hush.version",
    "audit": "hush_simulations.api.audit",
    "feasible": "hush_simulations.api.planning",
    "plan": "hush_simulations.api.planning",
    "simulate": "hush_simulations.api.simulate",
    "simulate_async": "hush_simulations.api.simulate",
    "sweep": "hush_simulations.api.sweep",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__, __dir__ = lazy_names(globals(), _HOMES, load)
