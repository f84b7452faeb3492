"""An identity provider for tests: keys, their JSON Web Key Set, and tokens that it signs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "treecast"
ISSUER = "https://login.shop"


class Provider:
    """Signs by one key of P-256 and one of RSA. `jwt`: the module PyJWT, which may not be installed."""

    def __init__(self, jwt: Any) -> None:
        self._jwt = jwt
        self.elliptic = ec.generate_private_key(ec.SECP256R1())
        self.rsa = rsa.generate_private_key(65537, 2048)

    def jwks(self, *, declared: bool = True) -> str:
        """Returns the public keys. `declared`: whether each says its algorithm."""
        rows = []
        for id, key, kind, algorithm in (
            ("e1", self.elliptic, self._jwt.algorithms.ECAlgorithm, "ES256"),
            ("r1", self.rsa, self._jwt.algorithms.RSAAlgorithm, "RS256"),
        ):
            row = json.loads(kind.to_jwk(key.public_key()))
            rows.append(row | {"kid": id, "use": "sig"} | ({"alg": algorithm} if declared else {}))
        return json.dumps({"keys": rows})

    def token(
        self,
        claims: Mapping[str, Any],
        *,
        now: float,
        key: Any = None,
        algorithm: str = "ES256",
        header: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns a token for AUDIENCE from ISSUER that is valid for ten minutes, but for `claims`; None
        takes one away."""
        full = {
            "aud": AUDIENCE,
            "iss": ISSUER,
            "sub": "alice",
            "iat": int(now),
            "exp": int(now) + 600,
        } | dict(claims)
        given = {name: value for name, value in full.items() if value is not None}
        made: str = self._jwt.encode(
            given,
            self.elliptic if key is None else key,
            algorithm=algorithm,
            headers={"kid": "e1"} if header is None else dict(header),
        )
        return made
