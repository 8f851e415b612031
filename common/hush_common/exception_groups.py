"""What is inside an exception group."""

__all__ = ["leaves", "worst"]


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups in it, in order, at least one; of any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]


def worst(errors: BaseExceptionGroup[BaseException], *, least: type[BaseException]) -> BaseException:
    """The one error of a group to tell: the first that is not of the kind that matters least, if there is one."""
    found = leaves(errors)
    return next((error for error in found if not isinstance(error, least)), found[0])
