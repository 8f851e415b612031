"""The command line of a device."""
