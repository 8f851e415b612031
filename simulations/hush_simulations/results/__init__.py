"""An outcome judged against the truth."""

__all__: list[str] = []
