"""The cipher of sealed segments: AES-256-GCM of OpenSSL, by the package `cryptography`.

`wire.segment_keys` knows an interface of two calls only. AES-GCM, because the processors of servers have
instructions for both of its parts; the plain reference of the tests is `tests/unit/wire/plain_gcm.py`.
"""

from __future__ import annotations

import secrets
import time

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from treecast.middleware.wire.segment_keys import SALT_SIZE, Data, Sealing


class AesGcm:
    """Implements `wire.segment_keys.Aead`."""

    __slots__ = ("_made",)

    def __init__(self, key: bytes) -> None:
        self._made = AESGCM(key)

    def seal(self, nonce: bytes, data: Data, header: bytes) -> bytes:
        return self._made.encrypt(nonce, data, header)

    def open(self, nonce: bytes, sealed: Data, header: bytes) -> bytes | None:
        try:
            return self._made.decrypt(nonce, sealed, header)
        except InvalidTag:
            return None


def sealing() -> Sealing:
    """Returns what a host seals with in this run."""
    return Sealing(AesGcm, secrets.token_bytes(SALT_SIZE), time.time_ns())
