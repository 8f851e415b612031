"""Intervals and confidence sequences, each from one theorem."""

__all__: list[str] = []
