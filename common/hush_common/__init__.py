"""What device and aggregator share: epsilon, domains, tasks, mechanisms, reports, topics.

Pure Python: no numpy, no input or output, no clock, no floating-point probability.
"""

__all__: list[str] = []
