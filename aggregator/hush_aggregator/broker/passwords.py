"""Passwords as mosquitto keeps them: salted, by PBKDF2 with SHA-512 (`$7$`), which mosquitto 2.0 and 2.1 read."""

import base64
import hashlib
import secrets

__all__ = ["GIVEN_ITERATIONS", "MADE_ITERATIONS", "hashed", "made"]

MADE_ITERATIONS = 101
"""What `mosquitto_passwd` takes: 192 random bits need no slow hash, and a broker hashes at each connection."""

GIVEN_ITERATIONS = 20_000
"""For a password that a person chose: 10 to 20 ms of the broker for each connection and each guess."""

_SALT_BYTES = 12  # mosquitto 2.0 reads no other length


def made() -> str:
    """A new password that nobody can guess: 192 bits, 32 letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(24)


def hashed(password: str, iterations: int) -> str:
    """What stands after the name and a colon in the file of passwords."""
    salt = secrets.token_bytes(_SALT_BYTES)
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"
