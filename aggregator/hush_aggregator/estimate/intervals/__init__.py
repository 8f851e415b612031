"""Intervals and confidence sequences, each from one theorem."""
