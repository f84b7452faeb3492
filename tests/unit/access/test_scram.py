"""SCRAM: the vectors of RFC 7677, log-ins of kafka-python's client, and bytes that are almost right."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from treecast.middleware.model.scram import (
    ITERATIONS,
    SHA256,
    SHA512,
    ScramError,
    ServerExchange,
    made_up,
    read_verifier,
    verifier,
)

NONCE = base64.b64decode("q" * 32)
FEW = 4096


def test_the_example_of_rfc_7677() -> None:
    """Its nonces are given by the RFC, so the server's part is put in by hand."""
    known = verifier(SHA256, b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = ServerExchange(SHA256, b"", lambda name: {"user": known}[name])
    exchange._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.final(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


@pytest.mark.parametrize("mechanism", [SHA256, SHA512])
@pytest.mark.parametrize(("password", "fits"), [("secret", True), ("sécret", False), ("", False)])
def test_kafka_pythons_client(mechanism: str, password: str, fits: bool) -> None:
    known = verifier(mechanism, b"secret", b"salt" * 6, FEW)
    client = ScramClient("alice", password, mechanism)
    exchange = ServerExchange(mechanism, NONCE, lambda name: known)
    client.process_server_first_message(exchange.first(client.first_message()))
    if not fits:
        with pytest.raises(ScramError, match="user name or password are wrong"):
            exchange.final(client.final_message())
        return
    client.process_server_final_message(exchange.final(client.final_message()))
    assert exchange.user == "alice"


def test_a_verifier_as_text() -> None:
    made = verifier(SHA512, b"secret", b"salt", FEW)
    assert read_verifier(SHA512, made.text) == made
    assert made.fits(b"secret")
    assert not made.fits(b"Secret")
    assert b"secret" not in made.text.encode()


@pytest.mark.parametrize(
    "text", ["", "4096", "x$c2FsdA==$AA==$AA==", "4096$c2FsdA==$AA==$AA==", "4095$$$", "4096$%$%$%", "9" * 20]
)
def test_no_verifier(text: str) -> None:
    with pytest.raises(ValueError):
        read_verifier(SHA256, text)


def test_an_unknown_user_looks_like_a_known_one() -> None:
    """The same salt at each try, another one for each name and each server; nothing fits."""
    first = made_up(SHA256, "nobody", b"key")
    assert first == made_up(SHA256, "nobody", b"key")
    assert first.salt != made_up(SHA256, "other", b"key").salt
    assert first.salt != made_up(SHA256, "nobody", b"other key").salt
    assert len(first.salt) == len(verifier(SHA256, b"x", b"s" * 24, FEW).salt)
    assert first.iterations == ITERATIONS
    assert not first.fits(b"")


WRONG_FIRST = (
    b"",
    b"p=tls-unique,,n=alice,r=abc",  # channel binding
    b"n,a=bob,n=alice,r=abc",
    b"n,,n=al=ice,r=abc",
    b"n,,m=x,n=alice,r=abc",  # an extension that must be understood
    b"n,,n=alice,r=",
    b"n,,n=alice,r=\xff",
    b"n,,n=alice,r=" + b"x" * 5000,
)


@pytest.mark.parametrize("message", WRONG_FIRST)
def test_first_messages_that_are_refused(message: bytes) -> None:
    exchange = ServerExchange(SHA256, NONCE, lambda name: made_up(SHA256, name, b"key"))
    with pytest.raises(ScramError):
        exchange.first(message)


def right_final(exchange: ServerExchange, first: str, password: bytes, header: str = "n,,") -> str:
    """An independent client: RFC 5802, section 3."""
    answer = exchange.first((header + first).encode()).decode()
    nonce, salt, iterations = (part[2:] for part in answer.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(salt), int(iterations))
    key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c={base64.b64encode(header.encode()).decode()},r={nonce}"
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{first},{answer},{bare}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}"


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=al=2Cice,"])
def test_headers_and_names(header: str) -> None:
    known = verifier(SHA256, b"secret", b"salt", FEW)
    exchange = ServerExchange(SHA256, NONCE, lambda name: {"al,ice": known}[name])
    exchange.final(right_final(exchange, "n=al=2Cice,r=abc", b"secret", header).encode())
    assert exchange.user == "al,ice"


@given(st.binary(max_size=200))
def test_any_bytes_give_only_a_refusal(data: bytes) -> None:
    known = verifier(SHA256, b"secret", b"salt", FEW)
    exchange = ServerExchange(SHA256, NONCE, lambda name: known)
    with pytest.raises(ScramError):
        exchange.final(data)
    exchange.first(b"n,,n=alice,r=abc")
    with pytest.raises(ScramError):
        exchange.final(data)


@given(st.integers(0, 120), st.integers(1, 255))
def test_a_changed_final_message_is_refused(at: int, flip: int) -> None:
    known = verifier(SHA256, b"secret", b"salt", FEW)
    exchange = ServerExchange(SHA256, NONCE, lambda name: known)
    final = bytearray(right_final(exchange, "n=alice,r=abc", b"secret").encode())
    at %= len(final)
    final[at] ^= flip
    # base64 may leave bits of its last character unused, so that another character means the same
    if bytes(final[-2:]) == b"==" or at < len(final) - 2:
        with pytest.raises(ScramError):
            exchange.final(bytes(final))
