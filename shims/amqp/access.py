"""Who may log in: RabbitMQ's `guest` from this host, or whoever a password file names."""

from __future__ import annotations

import hmac
from typing import Final

from treecast.shims.passwords import Passwords

from .session_host import OpenAccess, plain

_GUEST: Final = "guest"  # user and password


class GuestAccess(OpenAccess):
    """No users are known: `guest` may do everything, from this host only, as RabbitMQ has it by default."""

    def log_in(self, mechanism: str, response: bytes) -> str | None:
        parted = plain(response)
        if parted is None:
            return None
        user, password = parted
        known = hmac.compare_digest(user.encode(), _GUEST.encode())
        return user if known and hmac.compare_digest(password, _GUEST.encode()) else None

    def may_come(self, user: str, local: bool) -> bool:
        return local


class PasswordAccess(OpenAccess):
    """Users of a password file, who may do everything."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def log_in(self, mechanism: str, response: bytes) -> str | None:
        parted = plain(response)
        return parted[0] if parted is not None and self._passwords.fits(*parted) else None

    def renewed(self, user: str, secret: bytes) -> bool:
        return self._passwords.fits(user, secret)
