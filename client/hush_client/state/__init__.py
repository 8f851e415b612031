"""What a device keeps on its disk: the ledger and its neighbours, functions on an open transaction of one SQLite file of it."""

__all__: list[str] = []
