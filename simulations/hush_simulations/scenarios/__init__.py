"""Scenarios: a task and the population that answers it."""
