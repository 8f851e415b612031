"""Each import contract of pyproject.toml notices an import that it forbids."""

from copy import deepcopy
from functools import cache
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import Contract
from product import ROOT

CONFIGURATION: dict[str, Any] = read_configuration(str(ROOT / "pyproject.toml"))
SESSION: dict[str, Any] = CONFIGURATION["session_options"]
CONTRACTS: dict[str, dict[str, Any]] = {contract["name"]: contract for contract in CONFIGURATION["contracts_options"]}
TYPES: dict[str, type[Contract]] = {
    "layers": LayersContract,
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "protected": ProtectedContract,
}

PLANTED = {  # a contract, and imports each of which breaks it
    "Imports go one way; only the command `hush` starts the tour and the attacks": [
        ("hush_common.task", "hush_client.client"),
        ("hush_client.client", "hush_aggregator.aggregator"),
        ("hush_simulations.api", "hush_tour.command"),
        ("hush_aggregator.logs", "hush_attacks.catalogue"),
    ],
    "No import cycles between rooms": [
        ("hush_common.epsilon", "hush_common.task"),
        ("hush_tour.laplace_law", "hush_tour.chapters"),
    ],
    "Simulations: from the commands down to the scenarios; planning and auditing import no other room": [
        ("hush_simulations.scenarios.population", "hush_simulations.engines"),
        ("hush_simulations.planning.plan", "hush_simulations.auditing"),
    ],
    "Aggregator: from the commands down to the estimates": [
        ("hush_aggregator.estimate.proportions", "hush_aggregator.store.sqlite"),
        ("hush_aggregator.estimation", "hush_aggregator.store.sqlite"),
    ],
    "Device: from the commands down to the state and the policy": [("hush_client.policy", "hush_client.client")],
    "`decide` and `draw` share only the decision": [
        ("hush_client.privacy.draw", "hush_client.privacy.decide"),
        ("hush_client.privacy.decide", "hush_client.privacy.draw"),
        ("hush_client.privacy.decision", "hush_client.privacy.answer"),
    ],
    "Code that has the value imports no policy, state, connection, clock, log or file": [
        ("hush_client.privacy.draw", "time"),
        ("hush_client.privacy.draw", "hush_client.policy"),
        ("hush_client.privacy.decision", "hush_client.state.outbox"),
    ],
    "Code that decides imports no value, source, randomness or state": [
        ("hush_client.privacy.decide", "hush_common.rng"),
        ("hush_client.privacy.decide", "hush_client.state.outbox"),
    ],
    "The core of a device and the broker in memory run without any installed package": [
        ("hush_common.task", "pydantic"),
        ("hush_client.gateway", "hush_common.mqtt"),
        ("hush_simulations.brokers.memory", "typer"),
    ],
    "A device reaches no numpy, no `random` and nothing that only the other packages install": [
        ("hush_client.client", "numpy"),
        ("hush_common.rng", "random"),
    ],
    "Only `hush_common.mqtt` imports aiomqtt and paho": [
        ("hush_client.client", "paho"),
        ("hush_aggregator", "aiomqtt"),
    ],
    "Only `hush_aggregator.http` imports the libraries of HTTP: everything else runs without that extra": [
        ("hush_aggregator.release", "fastapi"),
        ("hush_simulations.api", "jinja2"),
    ],
}


@cache
def imports_of_the_product() -> grimp.ImportGraph:
    return grimp.build_graph(*SESSION["root_packages"], include_external_packages=True, cache_dir=None)


def is_kept(contract: str, *planted: tuple[str, str]) -> bool:
    graph = deepcopy(imports_of_the_product())
    for importer, imported in planted:
        assert importer in graph.modules
        if imported not in graph.modules:
            assert not imported.startswith("hush")
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}")
    options = CONTRACTS[contract]
    checked: bool = TYPES[options["type"]](contract, SESSION, options).check(graph, verbose=False).kept
    return checked


def test_each_contract_has_a_planted_import() -> None:
    assert set(PLANTED) == set(CONTRACTS)


@pytest.mark.parametrize(
    ("contract", "importer", "imported"),
    [(contract, *planted) for contract, imports in PLANTED.items() for planted in imports],
)
def test_a_contract_notices_an_import_that_it_forbids(contract: str, importer: str, imported: str) -> None:
    assert is_kept(contract)
    assert not is_kept(contract, (importer, imported))
