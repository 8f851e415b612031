"""A report: one perturbed answer. It is all that ever leaves a device."""

from dataclasses import dataclass

from hush_common.rng import REPORT_ID_BYTES, ReportRng

__all__ = ["DIGEST_BYTES", "REPORT_DIGEST_BYTES", "REPORT_ID_BYTES", "Report", "report_digest_of"]

DIGEST_BYTES = 32
"""Bytes of the digest of a task: a whole SHA-256."""
REPORT_DIGEST_BYTES = 16
"""How many of them a report carries, the first ones."""


@dataclass(frozen=True, slots=True)
class Report:
    """One perturbed answer to one round of one task.

    Args:
        digest: the first 16 bytes of the digest of the task that was answered.
        round: which round of it, 0 to 2^32 - 1.
        id: 16 random bytes, the key under which a redelivery is recognised. They say nothing about the device.
        body: the output of the mechanism, one or more signed 64-bit integers.
    """

    digest: bytes
    round: int
    id: bytes
    body: tuple[int, ...]

    @classmethod
    def new(cls, digest: bytes, round_: int, body: tuple[int, ...], rng: ReportRng) -> "Report":
        """A report with a fresh random id: 2^128 ids, so that a billion reports collide with probability 2e-21."""
        return cls(digest, round_, rng.report_id(), body)


def report_digest_of(digest: bytes) -> bytes:
    """Return the 16 bytes that a report carries of the 32-byte digest of its task."""
    return digest[:REPORT_DIGEST_BYTES]
