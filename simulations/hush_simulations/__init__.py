"""The laboratory: populations, brokers and whole simulations of devices and an aggregator. Nothing imports it.

    from hush_simulations.engines.experiment import Experiment
    from hush_simulations.engines.live import simulate

What is simulated is what is deployed: the client and the aggregator are the real ones.
"""
