"""The command line of the aggregator."""
