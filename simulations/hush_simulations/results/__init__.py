"""Results: an outcome compared with the truth."""

__all__: list[str] = []
