"""Brokers for simulations: an embedded one, a mosquitto, one in memory, or one that runs already."""
