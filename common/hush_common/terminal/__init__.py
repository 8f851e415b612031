"""What commands print for people: tables, lists of facts and sentences, as wide as the terminal. Standard library."""

__all__: list[str] = []
