"""The tasks that an aggregator counts: those known, their changes, and what they mean for privacy."""
