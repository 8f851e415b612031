"""The command line of the laboratory."""

__all__: list[str] = []
