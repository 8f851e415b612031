"""The configuration of mosquitto: TLS alone, a password for everybody, and limits that hold what hush sends."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["LARGEST_PACKET", "QUEUED", "Listener", "Versions", "configuration"]

LARGEST_PACKET = 4 * 1024 * 1024
"""Most bytes of a packet: a gateway's longest frame has 2.1 million, and an estimate of 1024 coordinates half of it."""

QUEUED = 1_000_000
"""Messages that wait for an aggregator that is away. What comes beyond is dropped, and asked for again."""

_QUEUED_BYTES = 1024 * 1024 * 1024
_SAVED_EVERY_S = 60
_SESSIONS_END_AFTER = "2m"  # months, in the words of mosquitto: longer than any aggregator is away


class Versions(StrEnum):
    """Mosquitto speaks two dialects: 2.1 has plugins for what 2.0 has built in."""

    V20 = "2.0"
    V21 = "2.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a broker listens, and as whom.

    Args:
        address: of the interface; empty for all of them.
        port: of TCP.
        certificate: of the broker, with those that vouch for it.
        key: of that certificate.
        user: whom mosquitto becomes if root starts it.
    """

    address: str
    port: int
    certificate: Path
    key: Path
    user: str


def configuration(home: Path, listener: Listener, *, queued: int = QUEUED, plugins: Path | None = None) -> str:
    """The text of `mosquitto.conf`.

    Args:
        home: the directory of all files that it names.
        listener: where it listens.
        queued: messages that may wait for one client; 0 for no bound.
        plugins: where the plugins of mosquitto 2.1 are; None writes for 2.0.
    """
    passwords, rules = home / "passwords", home / "rules"
    access = [f"password_file {passwords}", f"acl_file {rules}"]
    memory = [
        "persistence true",
        f"autosave_interval {_SAVED_EVERY_S}",
    ]
    if plugins is not None:
        access = [
            f"global_plugin {plugins / 'mosquitto_password_file.so'}",
            f"plugin_opt_password_file {passwords}",
            f"global_plugin {plugins / 'mosquitto_acl_file.so'}",
            f"plugin_opt_acl_file {rules}",
        ]
        memory = [
            f"global_plugin {plugins / 'mosquitto_persist_sqlite.so'}",
            "plugin_opt_flush_period 0",
            "plugin_opt_sync full",
        ]
    version = Versions.V20 if plugins is None else Versions.V21
    return "\n".join(
        [
            f"# mosquitto {version} for hush. docs/operations.md says why each line is here.",
            f"user {listener.user}",
            f"pid_file {home / 'mosquitto.pid'}",
            "",
            "# who may come in, and do what; the client id is the user, so that nobody takes another's session",
            "allow_anonymous false",
            *access,
            "",
            "# what waits for an aggregator that is away; 1000 in flight, because packet ids repeat past 65 535",
            "max_inflight_messages 1000",
            f"max_queued_messages {queued}",
            f"max_queued_bytes {_QUEUED_BYTES}",
            f"persistent_client_expiration {_SESSIONS_END_AFTER}",
            *memory,
            f"persistence_location {home / 'data'}/",
            "",
            "# what is longer is not dropped in silence: its sender is disconnected",
            f"max_packet_size {LARGEST_PACKET}",
            "",
            "# who connects when, and from where, is nobody's business",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "connection_messages false",
            "",
            "# TLS alone: there is no other listener",
            f"listener {listener.port} {listener.address}".rstrip(),
            f"certfile {listener.certificate}",
            f"keyfile {listener.key}",
            "use_username_as_clientid true",
            "max_qos 1",
            "",
        ]
    )
