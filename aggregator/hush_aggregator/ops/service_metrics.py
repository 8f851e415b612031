"""Metrics of the service itself: its estimates, process, store, backup, certificate and webhook."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hush_aggregator.publish.status import EstimateStatus
from hush_aggregator.store.disk import StoreDisk, disk_of, read_backup
from hush_aggregator.store.location import StoreAddress

_PROC = Path("/proc/self")
_MINUTE_S = 60
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a process uses."""

    memory: int  # resident bytes
    cpu_s: float  # processor time since its start, in seconds
    files: int  # open ones
    most_files: int  # that it may have open

    @classmethod
    def read(cls) -> "ProcessFigures | None":
        """Return the figures of this process; None where the system has no `/proc`."""
        try:
            import resource  # noqa: PLC0415 - Windows has none

            pages = int((_PROC / "statm").read_text(encoding="ascii").split()[1])
            files = sum(1 for _ in (_PROC / "fd").iterdir())
        except (ImportError, OSError):
            return None
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), time.process_time(), files, most)


@dataclass(frozen=True, slots=True)
class ServiceValues:
    """The state of a service at one moment; None for what it does not have, or does not know."""

    process: ProcessFigures | None = None
    disk: StoreDisk | None = None
    backup_at: datetime | None = None  # of the last backup
    estimates: EstimateStatus | None = None
    certificate_until: datetime | None = None  # of the broker
    notifications: int | None = None  # events that the webhook has not accepted yet

    @classmethod
    def read(
        cls,
        store: StoreAddress,
        estimates: EstimateStatus | None = None,
        certificate_until: datetime | None = None,
        notifications: int | None = None,
    ) -> "ServiceValues":
        """Return the values of this process and of a store."""
        disk = mark = None
        if isinstance(store, Path):
            with suppress(OSError):
                disk = disk_of(store)
            mark = read_backup(store)
        backup_at = None if mark is None else mark.at
        return cls(ProcessFigures.read(), disk, backup_at, estimates, certificate_until, notifications)


def service_families(values: ServiceValues) -> Iterator[Metric]:
    """Each metric with its help and sample."""
    if (process := values.process) is not None:
        yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory of this process.", process.memory)
        what = "Processor time of this process since its start, in full seconds."  # a fraction would tell of a commit
        yield CounterMetricFamily("process_cpu_seconds", what, int(process.cpu_s))
        yield GaugeMetricFamily("process_open_fds", "Open files of this process.", process.files)
        yield GaugeMetricFamily("process_max_fds", "Files that this process may have open.", process.most_files)
    if (disk := values.disk) is not None:
        # A page more or less would tell of a single commit.
        used, free = (-(-disk.used // _MIB) * _MIB, disk.free // _MIB * _MIB)
        yield GaugeMetricFamily("hush_store_bytes", "Size of the files of the store, in full MiB.", used)
        yield GaugeMetricFamily("hush_store_free_bytes", "Free bytes on the disk of the store, in full MiB.", free)
    if values.backup_at is not None:
        what = "When hush store backup last made a copy, in seconds since 1970; missing before the first one."
        yield GaugeMetricFamily("hush_backup_timestamp_seconds", what, values.backup_at.timestamp())
    if (estimates := values.estimates) is not None:
        yield GaugeMetricFamily("hush_estimates_due", "Published estimates that are out of date.", estimates.due)
        yield GaugeMetricFamily("hush_estimates_failed", "Tasks whose last estimate failed.", estimates.failed)
        what = "Full minutes since an estimate was published or, if there is none, since the start, in seconds."
        age = estimates.age_s // _MINUTE_S * _MINUTE_S
        yield GaugeMetricFamily("hush_estimate_age_seconds", what, age)
    if values.certificate_until is not None:
        what = "When the certificate of the broker expires, in seconds since 1970; missing without TLS."
        until = values.certificate_until.timestamp()
        yield GaugeMetricFamily("hush_broker_certificate_expiry_timestamp_seconds", what, until)
    if values.notifications is not None:
        what = "Events that the webhook has not accepted yet; missing without a webhook."
        yield GaugeMetricFamily("hush_notifications_waiting", what, values.notifications)


def http_families(process: ProcessFigures | None, silent_s: float | None) -> Iterator[Metric]:
    """Each metric of the process of HTTP next to an intake."""
    if process is not None:
        what = "Resident memory of the process of HTTP."
        yield GaugeMetricFamily("hush_http_resident_memory_bytes", what, process.memory)
        what = "Processor time of the process of HTTP since its start, in full seconds."
        yield CounterMetricFamily("hush_http_cpu_seconds", what, int(process.cpu_s))
        what = "Open files of the process of HTTP: connections are some of them."
        yield GaugeMetricFamily("hush_http_open_fds", what, process.files)
    if silent_s is not None:
        what = "Full seconds for which HTTP has not heard of the intake: all other metrics of it are so old."
        yield GaugeMetricFamily("hush_intake_silent_seconds", what, int(silent_s))
