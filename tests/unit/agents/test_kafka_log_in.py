"""Logging in at a Kafka broker: the bytes of each step, and refusals that say what to do."""

from __future__ import annotations

import pytest

from treecast.agents.kafka.log_in import LogIn, LogInRefused, steps
from treecast.middleware.wire.kafka_primitives import Reader, RemoteCodecError, put_count, put_string


def told(asked: object) -> bytes:
    """Returns the token in a SaslAuthenticate, or the mechanism in a SaslHandshake."""
    (frame,) = asked(1)  # type: ignore[operator]
    reader = Reader(memoryview(bytes(frame)), 14 + len("c"))
    if int.from_bytes(frame[4:6], "big") == 17:
        return reader.string(False).encode()
    return bytes(reader.nullable_bytes(False) or b"")


def handshake(code: int = 0) -> memoryview:
    out = bytearray(4) + code.to_bytes(2, "big")
    put_count(out, 1, False)
    put_string(out, "PLAIN", False)
    return memoryview(bytes(out))


def authenticated(token: bytes = b"", code: int = 0, message: str | None = None) -> memoryview:
    out = bytearray(4) + code.to_bytes(2, "big")
    put_string(out, message, False)
    put_count(out, len(token), False)
    return memoryview(bytes(out + token + bytes(8)))


def test_plain() -> None:
    talk = steps(LogIn("PLAIN", "ada", "secret"), "c")
    assert told(next(talk)) == b"PLAIN"
    assert told(talk.send(handshake())) == b"\0ada\0secret"
    assert talk.send(authenticated()) is None


def test_scram_sha_256_as_rfc_7677_shows_it() -> None:
    talk = steps(LogIn("SCRAM-SHA-256", "user", "pencil"), "c", "rOprNGfwEbeRWgbNEkqO")
    assert told(next(talk)) == b"SCRAM-SHA-256"
    assert told(talk.send(handshake())) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert told(talk.send(authenticated(challenge))) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert talk.send(authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")) is None


def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    talk = steps(LogIn("SCRAM-SHA-512", "user", "pencil"), "c", "abc")
    next(talk)
    talk.send(handshake())
    talk.send(authenticated(b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"))
    with pytest.raises(LogInRefused, match="another broker"):
        talk.send(authenticated(b"v=AAAA"))


@pytest.mark.parametrize(
    "challenge", [b"", b"r=other,s=AAAA,i=1", b"r=abcd,s=AAAA,i=0", b"r=abcd,s=AAAA,i=x", b"r=abcd,s=A,i=9"]
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes) -> None:
    talk = steps(LogIn("SCRAM-SHA-256", "user", "pencil"), "c", "abc")
    next(talk)
    talk.send(handshake())
    with pytest.raises(RemoteCodecError):
        talk.send(authenticated(challenge))


def test_refusals_say_what_to_do() -> None:
    talk = steps(LogIn("SCRAM-SHA-256", "ada", "x"), "c")
    next(talk)
    with pytest.raises(LogInRefused, match=r"but PLAIN: set kafka\.sasl"):
        talk.send(handshake(33))
    talk = steps(LogIn("PLAIN", "ada", "x"), "c")
    next(talk)
    talk.send(handshake())
    with pytest.raises(LogInRefused, match=r"Authentication failed\): check kafka\.user"):
        talk.send(authenticated(code=58, message="Authentication failed"))
