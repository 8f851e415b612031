"""Attacks that one can watch: each succeeds against a naive device or aggregator, and meets its bound at hush.

A module each. `run` plays the attack against both, and returns what came of it: a table, figures, and a picture.
"""
