"""The token with which one host joins a secured cluster, once: one line of text.

  treecast-once1.<text of a token, see `token_text`>
  content: id (8 bytes) | secret (16) | SHA-256 of the authority's certificate (32)

It holds no key of the cluster. The digest lets a host recognise the coordinator before it tells the secret,
of which the coordinator keeps a digest only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from .token_text import bad_token, content_of, text_of

ONE_TIME: Final = "treecast-once"  # begins the token of each version
PREFIX: Final = "treecast-once1."
ID_BYTES: Final = 8
SECRET_BYTES: Final = 16
_DIGEST: Final = 32
_BYTES: Final = ID_BYTES + SECRET_BYTES + _DIGEST


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
        content = content_of(text, PREFIX, "one-time join token")
        if len(content) != _BYTES:
            raise bad_token("the join token is damaged: copy it again, whole")
        end = ID_BYTES + SECRET_BYTES
        return cls(content[:ID_BYTES], content[ID_BYTES:end], content[end:])

    def format(self) -> str:
        """Returns the text. It is a secret until a host has joined with it."""
        return text_of(self.id + self.secret + self.authority, PREFIX)


def digest(secret: bytes) -> str:
    """Returns what the coordinator keeps of a secret. It is random, so that one hash suffices."""
    return hashlib.sha256(b"treecast one-time token\0" + secret).hexdigest()
