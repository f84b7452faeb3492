"""The join token: the secret that a host needs to join a cluster, as one line of text.

  treecast1.<text of a token, see `token_text`>
  content: key id (2 bytes, big endian) | cluster key (32) | cluster id (UTF-8)

The cluster key is a secret: keys for each use are derived from it (`derive`), and it is never sent.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from .token_text import bad_token, content_of, text_of

PREFIX = "treecast1."
KEY_BYTES = 32
_HEAD = 2


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token. `key_id` identifies the key when a cluster changes its key. The key is never shown."""

    cluster_id: str
    key_id: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 0 <= self.key_id < 2**16 or not self.cluster_id:
            raise ValueError(f"a token has a cluster id, a 16-bit key id and a key of {KEY_BYTES} bytes")

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Parses a token. Raises INVALID_REQUEST with the reason; no message contains the token's text."""
        content = content_of(text, PREFIX, "join token")
        try:
            cluster_id = content[_HEAD + KEY_BYTES :].decode()
        except UnicodeDecodeError as error:
            raise bad_token("the join token is damaged: copy it again") from error
        if not cluster_id:
            raise bad_token("the join token is damaged: copy it again, whole")
        return cls(cluster_id, int.from_bytes(content[:_HEAD], "big"), content[_HEAD : _HEAD + KEY_BYTES])

    def format(self) -> str:
        """Returns the text. It is a secret: anybody who has it can join."""
        return text_of(self.key_id.to_bytes(2, "big") + self.key + self.cluster_id.encode(), PREFIX)

    def derive(self, purpose: str) -> bytes:
        """Returns a key of 32 bytes for one purpose: HKDF-Expand (RFC 5869) with one block."""
        info = f"treecast {purpose}".encode() + b"\0" + self.cluster_id.encode()
        return hmac.digest(self.key, info + b"\x01", "sha256")


def new_token(cluster_id: str, key_id: int = 1) -> JoinToken:
    """Returns a token with a fresh key."""
    return JoinToken(cluster_id, key_id, secrets.token_bytes(KEY_BYTES))
