"""Batch: requests that are collected first and computed together, because one array operation serves many."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

__all__ = ["Batch"]

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Batch(Generic[Q, A]):
    """Questions of one kind; the first answer that is wanted brings those of all that were asked until then.

    Args:
        solve: gives the answers to many questions, in their order.
    """

    def __init__(self, solve: Callable[[Sequence[Q]], Sequence[A]]) -> None:
        self._solve = solve
        self._open: dict[Q, None] = {}
        self._known: dict[Q, A] = {}

    def ask(self, question: Q) -> Callable[[], A]:
        """What gives the answer, once all questions are asked."""
        self._open[question] = None
        return partial(self._answer, question)

    def _answer(self, question: Q) -> A:
        together, self._open = list(self._open), {}
        if together:
            with suppress(Exception):  # one question must never take the others with it: then each is asked alone
                self._known.update(zip(together, self._solve(together), strict=True))
        if question not in self._known:
            (self._known[question],) = self._solve([question])
        return self._known[question]
