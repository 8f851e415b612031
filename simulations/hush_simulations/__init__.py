"""The laboratory: populations, brokers and whole simulations of devices and an aggregator. Nothing imports it.

    from hush_simulations.plan import Plan
    from hush_simulations.runner import simulate

What is simulated is what is deployed: the client and the aggregator are the real ones.
"""

__all__: list[str] = []
