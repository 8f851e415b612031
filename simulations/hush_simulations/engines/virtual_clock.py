"""A clock that a simulation can advance, so that rounds a day apart do not take a day."""

from datetime import UTC, datetime, timedelta

__all__ = ["VirtualClock"]


class VirtualClock:
    """The current time, moved by an offset; call it as the clocks of client and aggregator are called.

    Args:
        start: what it shows now; None for the real time.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._offset = timedelta(0) if start is None else start - datetime.now(UTC)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def turn_to(self, moment: datetime) -> None:
        """Show `moment` (aware) now, unless it is past already: this clock never goes back."""
        self._offset = max(self._offset, moment - datetime.now(UTC))
