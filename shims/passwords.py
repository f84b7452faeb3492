"""Password files in the format of `mosquitto_passwd`, with one user per line.

    name ":" "$7$" iterations "$" salt "$" hash     PBKDF2, HMAC-SHA-512, 64 bytes (the default before 2.1)
    name ":" "$6$" salt "$" hash                    SHA-512 over password and salt
    name ":" "$argon2id$v=19$m=" KiB ",t=" passes ",p=" lanes "$" salt "$" hash    RFC 9106 (2.1's default)

Salt and hash are in base64, for argon2id without padding. Empty lines and lines that begin with `#` are
skipped. The parameters in a user's line set the cost of each log-in, so they are bounded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

_MOST_ITERATIONS: Final = 100_000
_MOST_KIB: Final = 262_144
_MOST_KIB_PASSES: Final = 4 * 262_144  # memory times passes, to which the time is proportional
_MOST_LANES: Final = 16
_LONGEST_PASSWORD: Final = 65_535

Fits = Callable[[bytes], bool]


class Secret(Struct, frozen=True):
    """A stored password. `fits` may run on any thread; it costs little if `cheap`.
    `stored` differs when the password does.
    """

    fits: Fits
    stored: bytes = b""
    cheap: bool = False


class PasswordError(ValueError):
    """Raised for an invalid line. The text gives its number, never its name, salt or hash."""


# --- the methods to store a password: each parses the fields between the `$`; ValueError if invalid


def _pbkdf2(fields: list[str]) -> Fits:
    iterations, salt, digest = _number(fields[0]), _bytes(fields[1]), _bytes(fields[2])
    if not 0 < iterations <= _MOST_ITERATIONS:
        raise PasswordError(f"1 to {_MOST_ITERATIONS} iterations, not {iterations}")
    return lambda password: hmac.compare_digest(
        hashlib.pbkdf2_hmac("sha512", password, salt, iterations, len(digest)), digest
    )


def _sha512(fields: list[str]) -> Fits:
    salt, digest = _bytes(fields[0]), _bytes(fields[1])
    return lambda password: hmac.compare_digest(hashlib.sha512(password + salt).digest(), digest)


_ARGON2_COST: Final = re.compile(r"m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})")


def _argon2id(fields: list[str]) -> Fits:
    found = _ARGON2_COST.fullmatch(fields[1])
    if fields[0] != "v=19" or found is None:
        raise ValueError
    memory, passes, lanes = map(int, found.groups())
    salt, digest = _bytes(_padded(fields[2])), _bytes(_padded(fields[3]))
    if memory > _MOST_KIB or memory * passes > _MOST_KIB_PASSES or lanes > _MOST_LANES:
        raise PasswordError(
            f"argon2id with m={memory}, t={passes}, p={lanes} costs too much for each log-in: m may be"
            f" {_MOST_KIB} KiB, m times t {_MOST_KIB_PASSES}, and p {_MOST_LANES} at most"
        )
    try:
        from argon2.exceptions import HashingError  # imported here because few files have such lines
        from argon2.low_level import Type, hash_secret_raw
    except ImportError:
        raise PasswordError(
            "argon2id needs argon2-cffi: pip install 'treecast[argon2]', or let"
            " `mosquitto_passwd -H sha512-pbkdf2` write the file"
        ) from None

    def fits(password: bytes) -> bool:
        made = hash_secret_raw(password, salt, passes, memory, lanes, len(digest), Type.ID)
        return hmac.compare_digest(made, digest)

    try:
        fits(b"")  # finds parameters that the algorithm rejects now, not at a client's log-in
    except HashingError:
        raise ValueError from None
    return fits


# First field -> (number of fields after it, parser)
_METHODS: Final[dict[str, tuple[int, Callable[[list[str]], Fits]]]] = {
    "7": (3, _pbkdf2),
    "6": (2, _sha512),
    "argon2id": (4, _argon2id),
}

_CHEAP: Final = frozenset({"6"})  # a single hash


class Passwords:
    """The users of a password file. A name that is not there has a secret too, which costs as much as the
    first user's and which nothing fits, so that the time does not tell names.
    """

    def __init__(self, text: str) -> None:
        """Parses `text`, the content of a password file. Raises PasswordError."""
        self._secrets: dict[str, Secret] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, fits, cheap = _read(line.strip(), number)
                self._secrets[name] = Secret(fits, line.strip().encode(), cheap)
        self._nobody = nobody(next(iter(self._secrets.values()), None))

    def __len__(self) -> int:
        return len(self._secrets)

    def __contains__(self, name: object) -> bool:
        """Whether there is a user of that name."""
        return name in self._secrets

    def secret(self, name: str) -> Secret:
        """Returns the secret of the user `name`, or that of nobody."""
        return self._secrets.get(name, self._nobody)

    def fits(self, name: str | None, password: bytes | None) -> bool:
        """Whether `password` is the password of the user `name`. Takes the time of a check."""
        if name is None or password is None or len(password) > _LONGEST_PASSWORD:
            return False
        return self.secret(name).fits(password)


def nobody(like: Secret | None) -> Secret:
    """Returns a secret that nothing fits, and that costs as much as `like`."""
    if like is None:
        return Secret(_never, cheap=True)

    def fits(password: bytes) -> bool:
        like.fits(password)
        return False

    return Secret(fits, b"", like.cheap)


def _never(password: bytes) -> bool:
    return False


def _read(line: str, number: int) -> tuple[str, Fits, bool]:
    name, colon, rest = line.partition(":")
    if not (name and colon and rest.startswith("$")):
        raise PasswordError(f"line {number} is none that mosquitto_passwd writes: expected NAME:$...")
    _, method, *fields = rest.split("$")
    if method not in _METHODS:
        known = ", ".join(f"${one}$" for one in _METHODS)
        shown = f"${method}$" if re.fullmatch(r"[a-z0-9-]{1,16}", method) and fields else "another way"
        raise PasswordError(f"line {number}: the password is kept in {shown}; known are {known}")
    count, read = _METHODS[method]
    try:
        if len(fields) != count:
            raise ValueError
        return name, read(fields), method in _CHEAP
    except PasswordError as error:
        raise PasswordError(f"line {number}: {error}") from None
    except (ValueError, binascii.Error):
        raise PasswordError(f"line {number} is no ${method}$ that mosquitto_passwd writes") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ValueError
    return int(text)


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def _bytes(text: str) -> bytes:
    found = base64.b64decode(text, validate=True)
    if not found:
        raise ValueError("empty")
    return found
