"""The token with which one host joins a secured cluster, once: one line of text.

  treecast-once1.<URL-safe base64, no padding, of the bytes below>
  version (1 byte, 1) | id (8) | secret (16) | SHA-256 of the authority's certificate (32) | check (4)

It holds no key of the cluster. The digest lets a host recognise the coordinator before it tells the secret,
of which the coordinator keeps a digest only. `check` is the beginning of SHA-256 over all bytes before it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

PREFIX: Final = "treecast-once1."
ID_BYTES: Final = 8
SECRET_BYTES: Final = 16
_DIGEST: Final = 32
_CHECK: Final = 4
_BYTES: Final = 1 + ID_BYTES + SECRET_BYTES + _DIGEST + _CHECK
_LONGEST: Final = 1024  # characters


@dataclass(frozen=True, slots=True)
class OneTimeToken:
    """A token. The secret is never shown."""

    id: bytes
    secret: bytes = field(repr=False)
    authority: bytes

    def __post_init__(self) -> None:
        if (len(self.id), len(self.secret), len(self.authority)) != (ID_BYTES, SECRET_BYTES, _DIGEST):
            raise ValueError("a one-time token has an id of 8 bytes, a secret of 16 and a digest of 32")

    @classmethod
    def parse(cls, text: str) -> OneTimeToken:
        """Parses a token. Raises INVALID_REQUEST with the reason; no message contains the token's text."""
        text = text.strip()
        if not text.startswith(PREFIX) or len(text) > _LONGEST:
            raise _bad(f"a one-time join token begins with {PREFIX!r} and is one line: copy it whole")
        body = text.removeprefix(PREFIX)
        try:
            data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise _bad("the join token is damaged: copy it again") from error
        content, check = data[:-_CHECK], data[-_CHECK:]
        if len(data) != _BYTES or hashlib.sha256(content).digest()[:_CHECK] != check:
            raise _bad("the join token is damaged: copy it again, whole")
        if data[0] != 1:
            raise _bad(f"the join token has version {data[0]}; this version of Treecast reads 1")
        end = 1 + ID_BYTES
        return cls(data[1:end], data[end : end + SECRET_BYTES], content[end + SECRET_BYTES :])

    def format(self) -> str:
        """Returns the text. It is a secret until a host has joined with it."""
        content = b"".join((b"\x01", self.id, self.secret, self.authority))
        check = hashlib.sha256(content).digest()[:_CHECK]
        return PREFIX + base64.urlsafe_b64encode(content + check).rstrip(b"=").decode()


def digest(secret: bytes) -> str:
    """Returns what the coordinator keeps of a secret. It is random, so that one hash suffices."""
    return hashlib.sha256(b"treecast one-time token\0" + secret).hexdigest()


def _bad(detail: str) -> TreecastError:
    return TreecastError(Fault.INVALID_REQUEST, detail)
