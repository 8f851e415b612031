"""Something to simulate over: an embedded broker, a mosquitto, one in memory, or one that runs already."""

__all__: list[str] = []
