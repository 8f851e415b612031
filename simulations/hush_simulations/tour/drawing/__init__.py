"""The figures of the tour, a module for each chapter."""

__all__: list[str] = []
