"""What runs on a device: learn a task, charge the ledger, perturb, store, and send until it is acknowledged."""

import logging

from hush_client.client import Client
from hush_client.gateway import Gateway
from hush_client.policy import Policy
from hush_client.receipt import Reason, Receipt
from hush_client.transport import Link, MqttTransport, Transport

__all__ = ["Client", "Gateway", "Link", "MqttTransport", "Policy", "Reason", "Receipt", "Transport"]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what to do with a warning is the application's choice
