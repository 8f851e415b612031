"""The command line of a device."""

__all__: list[str] = []
