"""A directory with all that mosquitto needs to serve hush, and nothing that somebody else may read."""

from hush_aggregator.broker.certificates import Certificate, given, make
from hush_aggregator.broker.configuration import Listener, Versions, configuration
from hush_aggregator.broker.directory import Directory
from hush_aggregator.broker.files import closed_above
from hush_aggregator.broker.rules import Role, control_of

__all__ = [
    "Certificate",
    "Directory",
    "Listener",
    "Role",
    "Versions",
    "closed_above",
    "configuration",
    "control_of",
    "given",
    "make",
]
