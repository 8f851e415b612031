"""Display: tables, pictures, progress and result files."""

__all__: list[str] = []
