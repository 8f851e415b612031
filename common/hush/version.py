"""The version that is installed. A module of its own, since looking it up takes a tenth of the time of `--help`."""

from importlib.metadata import version

__version__ = version("hush-ldp")
