"""hush in one name: what a program, a notebook and a device start from.

    import hush

    run = hush.simulate("heights", seed=7)

Names are loaded when they are first used (PEP 562): `import hush` costs what the standard library costs, and a device
that uses `hush.Client` never meets numpy.
"""

from typing import TYPE_CHECKING

from hush.extras import load
from hush_common.errors import HushError, MissingExtraError
from hush_common.lazy import lazy_names

if TYPE_CHECKING:
    from hush.version import __version__
    from hush_aggregator.pipeline import Aggregator
    from hush_client.client import Client
    from hush_client.sync import SyncClient
    from hush_simulations.scenarios.library import SCENARIOS
    from hush_simulations.scenarios.scenario import Scenario

__all__ = [
    "SCENARIOS",
    "Aggregator",
    "Client",
    "HushError",
    "MissingExtraError",
    "Scenario",
    "SyncClient",
    "__version__",
]

_HOMES = {
    "SCENARIOS": "hush_simulations.scenarios.library",
    "Aggregator": "hush_aggregator.pipeline",
    "Client": "hush_client.client",
    "Scenario": "hush_simulations.scenarios.scenario",
    "SyncClient": "hush_client.sync",
    "__version__": "hush.version",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__, __dir__ = lazy_names(globals(), _HOMES, load)
