"""The command line of the aggregator."""

__all__: list[str] = []
