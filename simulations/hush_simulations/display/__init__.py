"""For eyes and files: tables, pictures, progress."""

__all__: list[str] = []
