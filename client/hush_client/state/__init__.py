"""What a device keeps on its disk: the ledger and what goes with it, functions on an open transaction; and tasks."""
