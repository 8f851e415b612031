"""What `hush watch` shows of a task, where it comes from, and how it is shown."""

__all__: list[str] = []
