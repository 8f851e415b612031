"""`hush broker`: set up mosquitto, or run a small broker to try things. The two need different extras."""

from typing import Annotated

from hush_aggregator.commands import broker as lasting
from hush_common.lazy import load
from hush_common.options import Commands, Option

app: Commands = Commands(
    no_args_is_help=True,
    help="Set up mosquitto for hush, or run a small broker to try things.",
)

for _command in (lasting.config, lasting.add, lasting.remove):
    app.command()(_command)


@app.command()
def run(
    *,
    port: Annotated[str, Option(metavar="INTEGER", help="TCP port; 0 takes a free one.")] = "1883",
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the embedded broker until Ctrl-C. It keeps everything in memory and accepts any login."""
    load("hush_simulations.commands.broker", "hush broker run").run(port, host)
