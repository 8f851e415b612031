"""What a device keeps on its disk: one SQLite file, and functions on an open transaction of it."""

__all__: list[str] = []
