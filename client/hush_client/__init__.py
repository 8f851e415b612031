"""What runs on a device: learn a task, charge the ledger, perturb, store, and send until it is acknowledged.

The public names are loaded when they are first used (PEP 562): the core (`ledger`, `outbox`, `answer`, …) then needs
nothing but the standard library, and runs where nothing can be installed.
"""

import logging
from typing import TYPE_CHECKING

from hush_common.lazy import lazy_names

if TYPE_CHECKING:
    from hush_client.client import Client
    from hush_client.gateway import Gateway
    from hush_client.policy import Policy
    from hush_client.receipt import Reason, Receipt, Undelivered
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
    "Undelivered",
]

_HOMES = {
    "Client": "hush_client.client",
    "Gateway": "hush_client.gateway",
    "MqttTransport": "hush_client.sending.mqtt",
    "Policy": "hush_client.policy",
    "Reason": "hush_client.receipt",
    "Receipt": "hush_client.receipt",
    "Statement": "hush_client.statement",
    "SyncClient": "hush_client.sync",
    "Transport": "hush_client.sending.transport",
    "Undelivered": "hush_client.receipt",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what to do with a warning is the application's choice
