"""The join token: the secret that a host needs to join a cluster, as one line of text.

  treecast1.<URL-safe base64, no padding, of the bytes below>
  version (1 byte, 1) | key id (2, big endian) | cluster key (32) | cluster id (UTF-8) | check (4)

`check` is the beginning of SHA-256 over all bytes before it; it distinguishes a mistyped token from a wrong
one. The cluster key is a secret: keys for each use are derived from it (`derive`), and it is never sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from treecast.middleware.model.errors import Fault, TreecastError

PREFIX = "treecast1."
KEY_BYTES = 32
_HEAD, _CHECK = 3, 4
_LONGEST = 1024  # characters; a longer text is not a token


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
        text = text.strip()
        if not text.startswith(PREFIX) or len(text) > _LONGEST:
            raise _bad(f"a join token begins with {PREFIX!r} and is one line: copy it whole")
        body = text.removeprefix(PREFIX)
        try:
            data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            cluster_id = data[_HEAD + KEY_BYTES : -_CHECK].decode()
        except (binascii.Error, ValueError) as error:
            raise _bad("the join token is damaged: copy it again") from error
        content, check = data[:-_CHECK], data[-_CHECK:]
        if not cluster_id or hashlib.sha256(content).digest()[:_CHECK] != check:
            raise _bad("the join token is damaged: copy it again, whole")
        if data[0] != 1:
            raise _bad(f"the join token has version {data[0]}; this version of Treecast reads 1")
        return cls(cluster_id, int.from_bytes(data[1:_HEAD], "big"), data[_HEAD : _HEAD + KEY_BYTES])

    def format(self) -> str:
        """Returns the text. It is a secret: anybody who has it can join."""
        content = b"\x01" + self.key_id.to_bytes(2, "big") + self.key + self.cluster_id.encode()
        check = hashlib.sha256(content).digest()[:_CHECK]
        return PREFIX + base64.urlsafe_b64encode(content + check).rstrip(b"=").decode()

    def derive(self, purpose: str) -> bytes:
        """Returns a key of 32 bytes for one purpose: HKDF-Expand (RFC 5869) with one block."""
        info = f"treecast {purpose}".encode() + b"\0" + self.cluster_id.encode()
        return hmac.digest(self.key, info + b"\x01", "sha256")


def new_token(cluster_id: str, key_id: int = 1) -> JoinToken:
    """Returns a token with a fresh key."""
    return JoinToken(cluster_id, key_id, secrets.token_bytes(KEY_BYTES))


def _bad(detail: str) -> TreecastError:
    return TreecastError(Fault.INVALID_REQUEST, detail)
