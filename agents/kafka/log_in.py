"""How a client logs in at a Kafka broker: SASL PLAIN and SCRAM (RFC 5802), as a conversation without I/O.

SaslHandshake(mechanism) -> SaslAuthenticate(bytes), as often as the mechanism needs
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator
from typing import Final, Literal

from msgspec import Struct

from treecast.middleware.wire.kafka_primitives import Reader, RemoteCodecError, put_count, put_string

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2: Final = "n,,"
_MOST_ITERATIONS: Final = 1_000_000

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Encode = Callable[[int], list[bytearray]]
Conversation = Generator[Encode | None, memoryview, None]


class LogInRefused(RemoteCodecError):
    """The broker does not let this user in. The text is the broker's, with what to do next."""


class LogIn(Struct, frozen=True):
    mechanism: Mechanism
    user: str
    password: str


def steps(log_in: LogIn, client_id: str, nonce: str | None = None) -> Conversation:
    """Yields the requests of a log-in and takes the frames of their answers; None when it is done.

    `nonce`: of SCRAM, drawn if it is None. Raises LogInRefused or RemoteCodecError.
    """
    answer = yield _handshake(log_in.mechanism, client_id)
    _check_handshake(answer, log_in.mechanism)
    if log_in.mechanism == "PLAIN":
        _token((yield _authenticate(f"\0{log_in.user}\0{log_in.password}".encode(), client_id)))
    else:
        yield from _scram(log_in, client_id, nonce or secrets.token_urlsafe(24))
    yield None


def _scram(log_in: LogIn, client_id: str, nonce: str) -> Conversation:
    name = _HASHES[log_in.mechanism]
    user = log_in.user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = _token((yield _authenticate(f"{_GS2}{first}".encode(), client_id))).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
    try:
        joint, salt, rounds = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise RemoteCodecError("the broker's SCRAM challenge cannot be read") from error
    if not joint.startswith(nonce) or not 0 < rounds <= _MOST_ITERATIONS:
        raise RemoteCodecError("the broker's SCRAM challenge is not an answer to this client")
    salted = hashlib.pbkdf2_hmac(name, log_in.password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", name)
    bare = f"c={base64.b64encode(_GS2.encode()).decode()},r={joint}"
    signed = f"{first},{challenge},{bare}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = f"{bare},p={base64.b64encode(proof).decode()}"
    verdict = _token((yield _authenticate(final.encode(), client_id))).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if verdict != f"v={base64.b64encode(expected).decode()}":
        raise LogInRefused("the broker does not know the password: it may be another broker")


def _head(key: int, number: int, client_id: str) -> bytearray:
    out = bytearray(4) + key.to_bytes(2, "big") + (1).to_bytes(2, "big") + number.to_bytes(4, "big")
    put_string(out, client_id, False)
    return out


def _framed(out: bytearray) -> list[bytearray]:
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return [out]


def _handshake(mechanism: str, client_id: str) -> Encode:
    def encode(number: int) -> list[bytearray]:
        out = _head(_HANDSHAKE, number, client_id)
        put_string(out, mechanism, False)
        return _framed(out)

    return encode


def _authenticate(token: bytes, client_id: str) -> Encode:
    def encode(number: int) -> list[bytearray]:
        out = _head(_AUTHENTICATE, number, client_id)
        put_count(out, len(token), False)
        out += token
        return _framed(out)

    return encode


def _check_handshake(frame: memoryview, mechanism: str) -> None:
    reader = Reader(frame, 4)
    code = reader.int16()
    offered = [reader.string(False) for _ in range(reader.count(2, False))]
    if code:
        known = ", ".join(offered) or "none"
        raise LogInRefused(f"the broker does not take {mechanism}, but {known}: set kafka.sasl")


def _token(frame: memoryview) -> bytes:
    """Returns the broker's token. Raises LogInRefused."""
    reader = Reader(frame, 4)
    code, message = reader.int16(), reader.nullable_string(False)
    token = reader.nullable_bytes(False)
    if code:
        raise LogInRefused(
            f"the broker refuses the log-in ({message or code}): check kafka.user and its password"
        )
    return bytes(token or b"")
