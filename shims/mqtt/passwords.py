"""Password files as `mosquitto_passwd` writes them: one user on each line.

    name ":" "$7$" iterations "$" salt "$" hash     PBKDF2 with HMAC-SHA-512, 64 bytes (the default)
    name ":" "$6$" salt "$" hash                    SHA-512 over password and salt

Salt and hash are in base64. Empty lines, and those that begin with `#`, are left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

_MOST_ITERATIONS: Final = 100_000  # each CONNECT would cost that much
_LONGEST_PASSWORD: Final = 65_535


class PasswordError(ValueError):
    """A line that cannot be understood; its text says which, and never what is in it."""


class _Secret:
    """`iterations` 0: a plain SHA-512."""

    def __init__(self, iterations: int, salt: bytes, digest: bytes) -> None:
        self._iterations = iterations
        self._salt = salt
        self._digest = digest

    def fits(self, password: bytes) -> bool:
        if self._iterations:
            found = hashlib.pbkdf2_hmac("sha512", password, self._salt, self._iterations, len(self._digest))
        else:
            found = hashlib.sha512(password + self._salt).digest()
        return hmac.compare_digest(found, self._digest)


class Passwords:
    """Who may connect."""

    def __init__(self, text: str) -> None:
        """`text`: a file's. PasswordError."""
        self._secrets: dict[str, _Secret] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, secret = _read(line.strip(), number)
                self._secrets[name] = secret

    def __len__(self) -> int:
        return len(self._secrets)

    def fits(self, name: str | None, password: bytes | None) -> bool:
        """Whether the user is known by that password."""
        secret = self._secrets.get(name) if name is not None else None
        if secret is None or password is None or len(password) > _LONGEST_PASSWORD:
            return False
        return secret.fits(password)


def _read(line: str, number: int) -> tuple[str, _Secret]:
    name, colon, rest = line.partition(":")
    parts = rest.split("$")
    try:
        if colon and name and parts[:2] == ["", "7"] and len(parts) == 5:
            iterations = int(parts[2])
            if not 0 < iterations <= _MOST_ITERATIONS:
                raise PasswordError(f"line {number}: 1 to {_MOST_ITERATIONS} iterations, not {iterations}")
            return name, _Secret(iterations, _bytes(parts[3]), _bytes(parts[4]))
        if colon and name and parts[:2] == ["", "6"] and len(parts) == 4:
            return name, _Secret(0, _bytes(parts[2]), _bytes(parts[3]))
    except (ValueError, binascii.Error) as error:
        if isinstance(error, PasswordError):
            raise
    raise PasswordError(f"line {number} is none that mosquitto_passwd writes")


def _bytes(text: str) -> bytes:
    found = base64.b64decode(text, validate=True)
    if not found:
        raise ValueError("empty")
    return found
