"""A Dask cluster: other machines that do pieces of the work. The results are the same, since seeds belong to pieces.

The workers run the hush that is installed there: other versions of hush or numpy are refused by name. The pieces of a
lost worker are done again by another.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from hush_common.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from distributed import Client


TIMEOUT_S = 10
"""How long a scheduler, and each of its workers, may take to answer."""

W = TypeVar("W")
R = TypeVar("R")

_OPTION = "--dask"
_PACKAGES = ("hush-ldp", "numpy")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://[\w.\[\]:-]+:[0-9]{1,5}")


class Cluster:
    """A connection to the scheduler of a cluster, such as `tcp://scheduler:8786`, to be used in a `with`.

    Raises:
        OptionError: not an address; on entering: no scheduler or worker within `TIMEOUT_S`, or other versions.
        MissingExtraError: on entering: Dask is not installed here.
    """

    def __init__(self, address: str) -> None:
        if not _ADDRESS.fullmatch(address):  # not repeated in the message: it may have a login
            raise OptionError(_OPTION, "is not the address of a scheduler; write it as in tcp://host:8786")
        self.address = address
        self._client: Client | None = None

    def __enter__(self) -> Self:
        try:
            dask = import_module("distributed")
        except ImportError:
            raise MissingExtraError(
                "--dask needs distributed, which comes with hush-ldp[dask]; "
                "in a clone of hush, run: pip install '.[dask]'"
            ) from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # our messages name each error once
        try:
            self._client = dask.Client(self.address, timeout=TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            remedy = f"start dask scheduler there, and write its address as in {_OPTION} tcp://host:8786"
            raise OptionError(
                _OPTION, f"no scheduler answers at {self.address[:80]} within {TIMEOUT_S} s; {remedy}"
            ) from error
        try:
            self._check(self._client)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def each(
        self, make: Callable[[W], R], pieces: Sequence[W], wanted: Callable[[], bool] = lambda: True
    ) -> Iterator[R]:
        """Yield the results of `make`, which runs on the workers, until `wanted`, called every second, returns False.

        Raises:
            OptionError: the scheduler is lost, or all workers for `TIMEOUT_S`.
        """
        if self._client is None:
            raise RuntimeError("a cluster is used in a with")
        dask = import_module("distributed")
        pending = set(self._client.map(make, pieces, pure=False))
        alone = 0
        try:
            while pending and wanted():
                try:
                    with self._client.as_current():
                        done, pending = dask.wait(pending, timeout=1, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    alone = 0 if self._client.scheduler_info()["workers"] else alone + 1
                    if alone >= TIMEOUT_S:
                        raise self._lost() from None
                    continue
                yield from (future.result() for future in done)
        except (dask.KilledWorker, CancelledError, OSError) as error:
            raise self._lost() from error
        finally:
            with suppress(Exception):  # of a scheduler that is gone
                self._client.cancel(list(pending))  # type: ignore[no-untyped-call]

    def _lost(self) -> OptionError:
        return OptionError(_OPTION, f"the workers at {self.address[:80]} are lost; start them again, and repeat this")

    def _check(self, client: "Client") -> None:
        """Check that there is a worker, and that all have the same versions."""
        try:
            client.wait_for_workers(1, timeout=TIMEOUT_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {self.address[:80]}"
            raise OptionError(_OPTION, f"the scheduler has no worker after {TIMEOUT_S} s; {remedy}") from error
        here = _versions_here()
        for worker, there in client.run(_versions_here).items():
            differing = [
                f"{name} {there.get(name)}, here {here[name]}" for name in here if there.get(name) != here[name]
            ]
            if differing:
                raise OptionError(_OPTION, f"the worker {worker} has {'; '.join(differing)}; install the same there")

    def _close(self) -> None:
        if self._client is not None:
            self._client.close(timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]
            self._client = None


def _versions_here() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found
