"""Plugins of pytest: which lines of a package each test reaches (`Recorder`), and a choice of tests (`Selection`)."""

import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

__all__ = ["Recorder", "Selection"]


class Recorder:
    """Which lines are reached. Tests that do not pass are left out.

    Args:
        package: the folder whose lines count; modules are named from it (`estimate.bounded`).
    """

    def __init__(self, package: Path) -> None:
        self._package = f"{package}/"
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
                modules[file.removeprefix(self._package).removesuffix(".py").replace("/", ".")].append(line)
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
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        return self._line if frame.f_code.co_filename.startswith(self._package) else None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        if event == "line":
            self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


class Selection:
    """These tests alone, the fast ones first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._seconds])
        items[:] = sorted(
            (item for item in items if item.nodeid in self._seconds), key=lambda item: self._seconds[item.nodeid]
        )


def _forget() -> None:
    """Empty every cache of hush, so that a test reaches what it needs and not what the one before it left."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hush_"):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None:
                    clear()
