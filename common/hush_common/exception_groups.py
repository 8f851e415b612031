"""What is inside an exception group."""

__all__ = ["leaves"]


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups in it, in order, at least one; of any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]
