"""Plugins of pytest: which lines of a package each test reaches (`Recorder`), and a choice of tests (`Selection`)."""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tools.followed import TOLD

__all__ = ["Recorder", "Selection"]


class Recorder:
    """Which lines are reached, in this process and in those that it starts. Tests that do not pass are left out.

    Args:
        folder: where the lines are that count; modules are named from it (`hush_client.state.database`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self._told = folder / "told.txt"
        os.environ[TOLD] = str(self._told)
        self._now: set[tuple[str, int]] = set()
        self._lines: dict[str, set[tuple[str, int]]] = {}
        self._shared: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def lines(self) -> dict[str, dict[str, list[int]]]:
        """For each test and module. What a fixture reached counts for all tests of its file: it may be shared."""
        found: dict[str, dict[str, list[int]]] = {}
        for test in self.seconds:
            modules: dict[str, list[int]] = defaultdict(list)
            for file, line in sorted(self._lines[test] | self._shared[test.partition("::")[0]]):
                modules[file.removeprefix(self._folder).removesuffix(".py").replace("/", ".")].append(line)
            found[test] = modules
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        _forget()
        given = yield from self._traced()
        self._shared[item.nodeid.partition("::")[0]] |= self._now
        return given

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        _forget()
        given = yield from self._traced()
        self._lines[item.nodeid] = self._now
        return given

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def _traced(self) -> Generator[None, Any, Any]:
        self._now = set()
        threading.settrace(self._enter)  # for good: a thread that one test starts may work for the next
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self._now |= self._elsewhere()

    def _elsewhere(self) -> set[tuple[str, int]]:
        """What processes have reached since the last time."""
        if not self._told.exists():
            return set()
        lines = [line.rpartition(":") for line in self._told.read_text("utf-8").splitlines()]
        self._told.write_bytes(b"")
        return {(file, int(line)) for file, _, line in lines}

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        return self._line if frame.f_code.co_filename.startswith(self._folder) else None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        if event == "line":
            self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


class Selection:
    """These tests alone, the fast ones first, none much longer than the seconds that it takes otherwise."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._seconds])
        items[:] = sorted(
            (item for item in items if item.nodeid in self._seconds), key=lambda item: self._seconds[item.nodeid]
        )
        for item in items:  # what takes far longer than on the package as it is hangs
            item.add_marker(pytest.mark.timeout(8 + 5 * self._seconds[item.nodeid]), append=False)


def _forget() -> None:
    """Empty every cache of hush, so that a test reaches what it needs and not what the one before it left."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hush_"):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None:
                    clear()
