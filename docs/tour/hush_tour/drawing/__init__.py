"""The figures of the tour, a module for each chapter."""
