"""Results: an outcome compared with the truth."""
