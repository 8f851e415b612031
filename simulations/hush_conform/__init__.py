"""`hush conform`: run a program as a device against a broker and an aggregator that check everything it does."""
