"""Auditing: a lower bound on the epsilon of running code, measured from what an observer can tell."""
