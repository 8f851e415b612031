"""The simulation from Python: arguments instead of options, a `Run` instead of a table."""

__all__: list[str] = []
