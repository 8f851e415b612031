"""Scenarios: a task and the population that answers it."""

__all__: list[str] = []
