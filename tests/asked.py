"""The experiment of the options of `hush simulate`, without running it."""

from hush_simulations.api.simulate import SimulationOptions
from hush_simulations.commands.options import in_words_of_the_command
from hush_simulations.commands.simulate import Request, options_of
from hush_simulations.engines.experiment import Experiment


def experiment_of(request: Request) -> Experiment:
    with in_words_of_the_command(SimulationOptions.__dataclass_fields__):
        return SimulationOptions(**options_of(request)).experiment()
