"""What an observer can tell, measured: a lower bound on the epsilon of what is run."""

__all__: list[str] = []
