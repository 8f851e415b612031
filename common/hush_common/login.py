"""Login: the broker's address from a command's options, with a password that no process list shows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError

__all__ = ["LOGIN_FILE_HELP", "USER_HELP", "address", "password_in"]

USER_HELP = "User name at the broker, if the address has none."
LOGIN_FILE_HELP = "File whose first line is the password, so that no process list shows it."


def address(text: str, given: Mapping[str, str], password_file: Path | None) -> BrokerUrl:
    """The address of the broker, completed by the options that were given.

    Args:
        text: the address.
        given: fields of a `BrokerUrl` that replace those of the address, except empty ones.
        password_file: its first line replaces the password.

    Raises:
        BrokerError: the address cannot be read.
        OptionError: the file cannot be read, or the parts do not fit together.
    """
    parts = {name: value for name, value in given.items() if value}
    if password_file is not None:
        parts["password"] = password_in(password_file)
    parsed = BrokerUrl.parse(text)
    try:
        return replace(parsed, **parts)  # type: ignore[arg-type]  # the names above are all of texts
    except ValueError as error:
        raise OptionError("--broker", f"{parsed}: {error}") from None


def password_in(file: Path, option: str = "--password-file") -> str:
    """The first line of a file, which an option names.

    Raises:
        OptionError: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(option, f"{file} cannot be read ({reason}); name a file") from error
