"""Bearer tokens (OAUTHBEARER): JSON Web Tokens that an identity provider signs, checked against its keys.

The provider's public keys are a file, a JSON Web Key Set (RFC 7517); nothing is asked of the provider. A
token is refused unless all of this holds:

- it is signed by one of these keys, with an algorithm of public keys: not `none`, and not one of shared
  secrets, for which a public key could be taken as the secret;
- it is for this audience and, if one is named, from this issuer;
- it has an end (`exp`) that is to come, within MOST_SECONDS; its beginning (`nbf`, `iat`) is not to come.

Source: RFC 7519, RFC 8725. `PyJWT` checks signatures, and is loaded where there are tokens only. Pure but for
that: takes the file's text, and `now` in seconds since 1970.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from msgspec import Struct

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
MOST_SECONDS: Final = 7 * 86_400.0  # that a token may be valid from now on
LEEWAY: Final = 30.0  # seconds by which the provider's clock may be ahead
LONGEST: Final = 16 << 10  # characters of a token
_MOST_KEYS: Final = 256
_LONGEST_NAME: Final = 255


class BearerError(ValueError):
    """The token, or the file of keys, cannot be accepted. The text says why, and shows nothing of it."""


class OAuth(Struct, frozen=True):
    """Which tokens are accepted. `keys`: the path of a JSON Web Key Set. `issuer` "": any. `claim`: names the
    user.
    """

    keys: str
    audience: str
    issuer: str = ""
    claim: str = "sub"


class Bearer(Struct, frozen=True):
    """The holder of a token that was accepted. `until`: its end, in seconds since 1970."""

    user: str
    until: float


class Tokens(Protocol):
    """Checks tokens."""

    def check(self, token: str, now: float) -> Bearer:
        """Raises BearerError."""


class _Key(Struct, frozen=True):
    """`algorithm` "": whichever fits the key."""

    id: str
    algorithm: str
    key: Any  # of `cryptography`, whose types PyJWT takes


class JwksTokens:
    """Checks tokens by the keys of a JSON Web Key Set. Raises BearerError for an unusable one."""

    def __init__(self, oauth: OAuth, jwks: str) -> None:
        self._oauth = oauth
        self._jwt: Any = _library()  # an optional package
        self._keys = self._read(jwks)

    def _read(self, jwks: str) -> list[_Key]:
        try:
            rows = json.loads(jwks)["keys"]
            known = [row for row in rows[:_MOST_KEYS] if isinstance(row, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise BearerError("it is no JSON Web Key Set: an object with a list `keys`") from error
        found = [one for row in known if (one := self._key(row)) is not None]
        if not found:
            raise BearerError("it has no public key for signatures")
        return found

    def _key(self, row: Mapping[str, Any]) -> _Key | None:
        """Returns a key; None for one that is not for signatures, or of a kind that is not known."""
        if row.get("kty") == "oct" or row.get("use", "sig") != "sig":
            return None
        try:
            made = self._jwt.PyJWK(dict(row))
        except (self._jwt.PyJWTError, ValueError, TypeError, KeyError):
            return None
        return _Key(str(row.get("kid", "")), str(row.get("alg", "")), made.key)

    def check(self, token: str, now: float) -> Bearer:
        """Returns whose token it is. Raises BearerError."""
        if len(token) > LONGEST:
            raise BearerError(f"a token of {len(token)} characters: at most {LONGEST}")
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS or "crit" in header:
                raise BearerError("the token's algorithm is not accepted")
            claims = jwt.decode(
                token,
                self._signer(header, algorithm),
                algorithms=[algorithm],
                audience=self._oauth.audience,
                issuer=self._oauth.issuer or None,
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise error if isinstance(error, BearerError) else BearerError(_why(error)) from error
        return Bearer(self._user(claims), _end(claims, now))

    def _signer(self, header: Mapping[str, Any], algorithm: str) -> Any:
        """Returns the key that the token names; without a name the one key that there is."""
        id = header.get("kid")
        named = [one for one in self._keys if one.id == id] if id is not None else self._keys
        fitting = [one for one in named if one.algorithm in ("", algorithm)]
        if len(fitting) != 1:
            raise BearerError("no key of the file is the one that the token names")
        return fitting[0].key

    def _user(self, claims: Mapping[str, Any]) -> str:
        user = claims.get(self._oauth.claim)
        if not isinstance(user, str) or not 0 < len(user) <= _LONGEST_NAME:
            raise BearerError(f"the token has no user in {self._oauth.claim!r}")
        return user


def _end(claims: Mapping[str, Any], now: float) -> float:
    """Returns the token's end, if now is a time at which it is valid. Raises BearerError."""
    end = _time(claims, "exp")
    if end is None:
        raise BearerError("the token has no end (exp)")
    if end <= now:
        raise BearerError("the token has expired")
    if end - now > MOST_SECONDS:
        raise BearerError(f"the token is valid for more than {MOST_SECONDS / 86_400:g} days")
    for name in ("nbf", "iat"):
        begin = _time(claims, name)
        if begin is not None and begin > now + LEEWAY:
            raise BearerError("the token is not valid yet")
    return end


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise BearerError(f"the token's {name} is no time")
    return float(found)


def _why(error: Exception) -> str:
    """Returns words for an error of PyJWT, by its kind: its text may show a part of the token."""
    kinds = {
        "InvalidAudienceError": "the token is for another audience",
        "MissingRequiredClaimError": "the token lacks its audience or issuer",
        "InvalidIssuerError": "the token is from another issuer",
        "InvalidSignatureError": "the token's signature is wrong",
    }
    return kinds.get(type(error).__name__, "this is no signed token of the file's keys")


def _library() -> Any:
    try:
        return import_module("jwt")
    except ImportError as error:
        raise BearerError("tokens need PyJWT: pip install 'treecast[oauth]'") from error
