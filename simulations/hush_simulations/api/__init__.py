"""The simulation from Python: arguments instead of options, a `Run` instead of a table."""
