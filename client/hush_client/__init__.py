"""What runs on a device: learn a task, charge the ledger, perturb, store, and send until it is acknowledged.

The public names are loaded when they are first used (PEP 562): the core (`ledger`, `outbox`, `answer`, …) then needs
nothing but the standard library, and runs where nothing can be installed.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush_client.client import Client
    from hush_client.gateway import Gateway
    from hush_client.policy import Policy
    from hush_client.receipt import Reason, Receipt
    from hush_client.sending.mqtt import MqttTransport
    from hush_client.sending.transport import Transport
    from hush_client.statement import Statement
    from hush_client.sync import SyncClient

__all__ = [
    "Client",
    "Gateway",
    "MqttTransport",
    "Policy",
    "Reason",
    "Receipt",
    "Statement",
    "SyncClient",
    "Transport",
]

_HOMES = {
    "Client": "client",
    "Gateway": "gateway",
    "MqttTransport": "sending.mqtt",
    "Policy": "policy",
    "Reason": "receipt",
    "Receipt": "receipt",
    "Statement": "statement",
    "SyncClient": "sync",
    "Transport": "sending.transport",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # the next look-up does not come here
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


logging.getLogger(__name__).addHandler(logging.NullHandler())  # what to do with a warning is the application's choice
