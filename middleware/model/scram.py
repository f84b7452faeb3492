"""SCRAM-SHA-256 and SCRAM-SHA-512: what is stored of a password, and the server's side of a log-in.

    client first:  n,, n=USER,r=CLIENT-NONCE
    server first:  r=CLIENT-NONCE SERVER-NONCE,s=SALT,i=ITERATIONS
    client final:  c=biws,r=NONCES,p=PROOF
    server final:  v=SIGNATURE

What is stored, a `Verifier`, lets a server check a log-in and not make one: the password itself cannot be
computed from it but by guessing. Names and passwords are compared as UTF-8 bytes, without SASLprep, as
Kafka's broker and clients do.

Source: RFC 5802, RFC 7677; KIP-84. Channel binding and an authorization identity other than the user's own
are refused.
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

SHA256: Final = "SCRAM-SHA-256"
SHA512: Final = "SCRAM-SHA-512"
HASHES: Final = {SHA256: "sha256", SHA512: "sha512"}
ITERATIONS: Final = 8192  # of new verifiers
LEAST_ITERATIONS: Final = 4096  # RFC 7677
MOST_ITERATIONS: Final = 1_000_000
SALT_BYTES: Final = 24
NONCE_BYTES: Final = 24
_LONGEST: Final = 4096  # bytes of a client's message

_FIRST: Final = re.compile(r"(n|y),(?:a=([^,]*))?,n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?", re.DOTALL)
_FINAL: Final = re.compile(r"c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,[^p].*)?,p=([^,]*)", re.DOTALL)


class ScramError(ValueError):
    """A message of the client is wrong, or its proof is. The text does not tell whether there is the user."""


class Verifier(Struct, frozen=True):
    """The stored form of a password for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def fits(self, password: bytes) -> bool:
        """Whether this is the password. Costs the iterations."""
        made = verifier(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)

    @property
    def text(self) -> str:
        """The verifier as it is written into files: ITERATIONS$SALT$STORED-KEY$SERVER-KEY, base64."""
        parts = (self.salt, self.stored_key, self.server_key)
        return "$".join([str(self.iterations), *(base64.b64encode(part).decode() for part in parts)])


def verifier(mechanism: str, password: bytes, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Makes the verifier of a password. `salt`: random bytes."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)
    return verifier_of_salted(mechanism, iterations, salt, salted)


def digest_size(mechanism: str) -> int:
    """Returns the bytes of a mechanism's keys."""
    return hashlib.new(HASHES[mechanism]).digest_size


def verifier_of_salted(mechanism: str, iterations: int, salt: bytes, salted: bytes) -> Verifier:
    """Makes the verifier of a password of which only the salted form is known."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return Verifier(mechanism, iterations, salt, hashlib.new(name, client_key).digest(), server_key)


def read_verifier(mechanism: str, text: str) -> Verifier:
    """Reads `Verifier.text`. Raises ValueError."""
    parts = text.split("$")
    if len(parts) != 4 or not (parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 9):
        raise ValueError(f"no verifier of {mechanism}: expected ITERATIONS$SALT$STORED-KEY$SERVER-KEY")
    iterations = int(parts[0])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations, not {iterations}")
    salt, stored_key, server_key = (_decoded(part) for part in parts[1:])
    size = digest_size(mechanism)
    if not salt or len(stored_key) != size or len(server_key) != size:
        raise ValueError(f"a verifier of {mechanism} has keys of {size} bytes, and a salt")
    return Verifier(mechanism, iterations, salt, stored_key, server_key)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("no base64") from error


def made_up(mechanism: str, name: str, key: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Returns a verifier for a name that no user has. `key`, a secret of the server, makes it the same at
    each try, so that a client cannot tell whether there is the user."""
    salt = hmac.digest(key, f"salt {mechanism} {name}".encode(), "sha512")
    unknown = hmac.digest(key, f"keys {mechanism} {name}".encode(), HASHES[mechanism])
    return Verifier(mechanism, iterations, salt[:SALT_BYTES], unknown, unknown)


class ServerExchange:
    """The server's side of one log-in: `first`, then `final`. Both raise ScramError.

    `find` returns the verifier of a user. `user` is the one who asks; `final` has proven it.
    """

    def __init__(self, mechanism: str, nonce: bytes, find: Callable[[str], Verifier]) -> None:
        """`nonce`: NONCE_BYTES random bytes."""
        self.user = ""
        self._name = HASHES[mechanism]
        self._nonce = base64.b64encode(nonce).decode().replace(",", "")
        self._find = find
        self._verifier: Verifier | None = None
        self._header = b""
        self._signed = ""  # the messages that the proof signs

    @property
    def began(self) -> bool:
        return self._verifier is not None

    def first(self, message: bytes) -> bytes:
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramError("the first message is malformed, or asks for channel binding")
        flag, authorized, name, nonce = found.groups()
        self.user = _name(name)
        if authorized is not None and _name(authorized) != self.user:
            raise ScramError("an authorization identity other than the user is not supported")
        header = f"{flag},{'' if authorized is None else 'a=' + authorized},"
        self._header = header.encode()
        self._verifier = known = self._find(self.user)
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(known.salt).decode()
        answer = f"r={self._nonce},s={salt},i={known.iterations}"
        self._signed = f"{message.decode()[len(header) :]},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        text, known = _text(message), self._verifier
        found = _FINAL.fullmatch(text)
        if found is None or known is None:
            raise ScramError("the final message is malformed")
        binding, nonce, proof = found.groups()
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("the final message has another nonce")
        if _proof(binding) != self._header:
            raise ScramError("the final message has another header")
        signed = f"{self._signed},{text[: text.rindex(',p=')]}".encode()
        if not self._fits(known, signed, _proof(proof)):
            raise ScramError("user name or password are wrong")
        return b"v=" + base64.b64encode(hmac.digest(known.server_key, signed, self._name))

    def _fits(self, known: Verifier, signed: bytes, proof: bytes) -> bool:
        """Whether the proof is the client key, hidden by the signature of what was said."""
        signature = hmac.digest(known.stored_key, signed, self._name)
        if len(proof) != len(signature):
            return False
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._name, key).digest(), known.stored_key)


def _text(message: bytes) -> str:
    if len(message) > _LONGEST:
        raise ScramError(f"a message of {len(message)} bytes; {_LONGEST} at most")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("a message is not UTF-8") from error


def _name(text: str) -> str:
    """Reads a saslname: `=2C` is a comma, `=3D` an equals sign, any other `=` is an error."""
    if re.search("=(?!2C|3D)", text):
        raise ScramError("a name has an = that is no =2C or =3D")
    return text.replace("=2C", ",").replace("=3D", "=")


def _proof(text: str) -> bytes:
    try:
        return _decoded(text)
    except ValueError as error:
        raise ScramError("the final message has no base64 where it should") from error
