"""The laboratory: populations, brokers and whole simulations of devices and an aggregator.

What is simulated is what is deployed: the client and the aggregator are the real ones.

    from hush_simulations.api.simulate import simulate

Results import nothing that shows them; this package tells them what does.
"""

from hush_simulations.shown import Display, Shown


def _display() -> Display:
    from hush_simulations.display import shown  # noqa: PLC0415 - only when a result is shown

    return shown


Shown.show_by(_display)
