"""Recall: an aggregator asks devices to resend their retained reports, because a broker may have lost them.

    topic     hush/v1/recalls/{task}, retained, QoS 1, written by the aggregator alone; empty: the recall has ended
    payload   {"v":1,"task":"heights","digest":"<64 hex>","id":"<32 hex>","over":3600}, at most 512 bytes

The same bytes go out again, never a fresh draw, so that a report counts once however often it is recalled. Reading is
total: any bytes give a `Recall` or None, which readers treat as no recall.
"""

import json
from dataclasses import dataclass
from datetime import timedelta

from hush_common.task import CLOCK_SKEW, is_task_id
from hush_common.untrusted import RECALL, read_json
from hush_common.wire import DIGEST_BYTES, is_hex, is_int

RECALL_LIMIT = RECALL.bytes  # most bytes of a recall
RECALL_ID_BYTES = 16
SHORTEST_OVER, LONGEST_OVER = 1, 24 * 3600
"""Seconds between which every recall is spread, whatever it says."""
KEPT_FOR = timedelta(days=7)
"""How long a device keeps a report after the broker's acknowledgement, at most: no recall can be open for longer."""


def grace_of(spread: int) -> timedelta:
    """How long after `closes` a report recalled over `spread` seconds (clamped) is still sent and admitted."""
    return CLOCK_SKEW + timedelta(seconds=2 * spread)


LAST_COUNTED = grace_of(LONGEST_OVER)
"""How long after `closes` a report may still be counted, whatever was recalled; a later one never is."""

_VERSION = 1
_KEYS = {"v", "task", "digest", "id", "over"}
_OVER = range(1 << 53)


@dataclass(frozen=True, slots=True)
class Recall:
    """A recall of one task; ValueError for an argument that no document can state."""

    task: str  # its id
    digest: bytes  # 32 bytes: the reports of another task under this id are not recalled
    id: bytes  # 16 random bytes; a device sends each kept report once for each id
    over: int  # seconds over which all devices together spread the reports, as the document states them

    def __post_init__(self) -> None:
        lengths = len(self.digest), len(self.id)
        if not is_task_id(self.task) or lengths != (DIGEST_BYTES, RECALL_ID_BYTES) or not is_int(self.over, _OVER):
            raise ValueError("a recall has the id of a task, 32 bytes of digest, 16 of id, and whole seconds")

    @property
    def spread(self) -> int:
        """`over`, clamped to 1 s … 24 h: no recall is immediate or endless."""
        return min(max(self.over, SHORTEST_OVER), LONGEST_OVER)

    @property
    def grace(self) -> timedelta:
        """How long after `closes` a recalled report is still sent and admitted: the clock skew plus twice `spread`."""
        return grace_of(self.spread)


def encode_recall(recall: Recall) -> bytes:
    """Return the document, as one line."""
    document: dict[str, object] = {"v": _VERSION, "task": recall.task, "digest": recall.digest.hex()}
    document |= {"id": recall.id.hex(), "over": recall.over}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_recall(payload: bytes) -> Recall | None:
    """Parse a recall; return None if it is invalid. Never raises."""
    if b"\\" in payload:  # what is legal needs no escape
        return None
    try:
        document = read_json(payload, RECALL, parse_int=_natural)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.keys() != _KEYS or not is_int(document["v"], range(1, 2)):
        return None
    task, digest, identifier, over = (document[name] for name in ("task", "digest", "id", "over"))
    if not (isinstance(task, str) and is_hex(digest, DIGEST_BYTES) and is_hex(identifier, RECALL_ID_BYTES)):
        return None
    try:
        return Recall(task, bytes.fromhex(digest), bytes.fromhex(identifier), over)
    except ValueError:
        return None


def _natural(text: str) -> int:
    """Return an integer without a sign: -0 has one."""
    if not text.isdigit():
        raise ValueError("an integer with a sign")
    return int(text)
