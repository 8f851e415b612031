"""What operators watch in numbers. The names and texts of Prometheus are in `exposition`, the counting needs none."""

__all__: list[str] = []
