"""Special functions, quantiles and guarded arithmetic, none of which knows a mechanism."""

__all__: list[str] = []
