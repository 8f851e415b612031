"""The chapters: notebooks, each of which is run and read by itself."""

__all__: list[str] = []
