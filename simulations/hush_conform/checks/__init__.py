"""The checks of `hush conform`, one subject a module."""
