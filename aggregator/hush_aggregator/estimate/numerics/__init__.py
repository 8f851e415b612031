"""Special functions, quantiles and guarded arithmetic, none of which knows a mechanism."""
