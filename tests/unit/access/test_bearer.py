"""Bearer tokens: what is accepted, and each way in which one is not."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from tests.provider import AUDIENCE, ISSUER, Provider

from treecast.middleware.broker.access import Bearer, BearerError, JwksTokens, OAuth

jwt = pytest.importorskip("jwt", reason="PyJWT comes with the extras `oauth` and `test`")

NOW = 1_800_000_000.0
DAY = 86_400
OAUTH = OAuth("", AUDIENCE, ISSUER)
PROVIDER = Provider(jwt)
TOKENS = JwksTokens(OAUTH, PROVIDER.jwks())


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(**claims: Any) -> str:
    return PROVIDER.token(claims, now=NOW)


def test_a_token_that_is_accepted() -> None:
    assert TOKENS.check(token(), NOW) == Bearer("alice", NOW + 600)
    assert TOKENS.check(token(aud=["other", AUDIENCE]), NOW).user == "alice"
    by_rsa = PROVIDER.token({}, now=NOW, key=PROVIDER.rsa, algorithm="RS256", header={"kid": "r1"})
    assert TOKENS.check(by_rsa, NOW).user == "alice"
    named = JwksTokens(OAuth("", AUDIENCE, claim="name"), PROVIDER.jwks(declared=False))
    assert named.check(token(name="bob", iss="https://elsewhere"), NOW).user == "bob"
    assert named.check(
        PROVIDER.token({"name": "bob"}, now=NOW, key=PROVIDER.rsa, algorithm="PS512", header={"kid": "r1"}),
        NOW,
    )


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "another"}, "another audience"),
        ({"aud": None}, "lacks its audience"),
        ({"aud": []}, "audience"),
        ({"iss": "https://elsewhere"}, "another issuer"),
        ({"iss": None}, "lacks its audience or issuer"),
        ({"exp": None}, "no end"),
        ({"exp": int(NOW)}, "expired"),
        ({"exp": int(NOW) - 600}, "expired"),
        ({"exp": int(NOW) + 8 * DAY}, "more than 7 days"),
        ({"exp": 1 << 60}, "more than 7 days"),
        ({"exp": True}, "no time"),
        ({"nbf": int(NOW) + 60}, "not valid yet"),
        ({"iat": int(NOW) + 60}, "not valid yet"),
        ({"nbf": int(NOW) + 10 * 365 * DAY}, "not valid yet"),
        ({"sub": None}, "no user"),
        ({"sub": ""}, "no user"),
        ({"sub": "x" * 300}, "no user"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(BearerError, match=said):
        TOKENS.check(token(**claims), NOW)


def test_it_is_refused_from_its_end_on() -> None:
    made = token()
    assert TOKENS.check(made, NOW + 599)
    with pytest.raises(BearerError, match="expired"):
        TOKENS.check(made, NOW + 600)


def test_algorithms_that_are_refused() -> None:
    """None, in any spelling; shared secrets, with the public key as the secret; another than the key's."""
    claims = part({"aud": AUDIENCE, "iss": ISSUER, "sub": "alice", "exp": NOW + 60})
    for name in ("none", "None", "NONE", "nOnE", "HS256", "", None, 7):
        for signature in ("", part(b"x")):
            with pytest.raises(BearerError, match=r"algorithm|no signed token"):
                TOKENS.check(f"{part({'alg': name, 'kid': 'e1'})}.{claims}.{signature}", NOW)
    public = PROVIDER.rsa.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'r1'})}.{claims}"
    shared = f"{signed}.{part(hmac.digest(public, signed.encode(), 'sha256'))}"
    with pytest.raises(BearerError, match="algorithm"):
        TOKENS.check(shared, NOW)
    other = PROVIDER.token({}, now=NOW, key=PROVIDER.rsa, algorithm="RS512", header={"kid": "r1"})
    with pytest.raises(BearerError, match="no key"):
        TOKENS.check(other, NOW)
    critical = PROVIDER.token({}, now=NOW, header={"kid": "e1", "crit": ["b64"], "b64": True})
    with pytest.raises(BearerError, match=r"algorithm|no signed token"):
        TOKENS.check(critical, NOW)


def test_keys_that_are_refused() -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(BearerError, match="signature"):
        TOKENS.check(PROVIDER.token({}, now=NOW, key=stranger), NOW)
    for header in ({"kid": "other"}, {"kid": "r1"}):
        with pytest.raises(BearerError, match="no key"):
            TOKENS.check(PROVIDER.token({}, now=NOW, header=header), NOW)
    nameless = PROVIDER.token({}, now=NOW, header={})
    assert TOKENS.check(nameless, NOW)  # one key fits its algorithm
    with pytest.raises(BearerError, match="no key"):
        JwksTokens(OAUTH, PROVIDER.jwks(declared=False)).check(nameless, NOW)
    own = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(stranger.public_key()))
    for header in ({"kid": "e1", "jwk": own}, {"kid": "e1", "jku": "https://elsewhere/keys"}):
        with pytest.raises(BearerError, match="signature"):
            TOKENS.check(PROVIDER.token({}, now=NOW, key=stranger, header=header), NOW)


def test_a_changed_token_is_refused() -> None:
    head, claims, signature = token().split(".")
    other = part({"aud": AUDIENCE, "iss": ISSUER, "sub": "root", "exp": NOW + 60})
    for wrong in (
        f"{head}.{other}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        "",
        "a.b.c",
        "x" * 20_000,
    ):
        with pytest.raises(BearerError):
            TOKENS.check(wrong, NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"keys": 1}', '{"keys": []}', '{"keys": [1]}'),
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "e1"}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
    ],
)
def test_files_that_are_no_key_sets(text: str) -> None:
    with pytest.raises(BearerError):
        JwksTokens(OAUTH, text)


def test_keys_for_encryption_sign_nothing() -> None:
    rows = json.loads(PROVIDER.jwks())["keys"]
    rows[0]["use"] = "enc"
    with pytest.raises(BearerError, match="no key"):
        JwksTokens(OAUTH, json.dumps({"keys": rows})).check(token(), NOW)


@given(st.text() | st.builds(".".join, st.lists(st.binary().map(part), min_size=3, max_size=3)))
def test_any_text_gives_only_a_refusal(text: str) -> None:
    with pytest.raises(BearerError) as refusal:
        TOKENS.check(text, NOW)
    assert len(text) < 8 or text not in str(refusal.value)
