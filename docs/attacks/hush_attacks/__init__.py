"""Demonstrations of attacks: each succeeds against a naive device or aggregator, and fails against hush.

Each has a module. `run` plays the attack against both, and returns the result: a table, figures and a picture.
"""
