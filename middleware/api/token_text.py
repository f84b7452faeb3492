"""The text of a token: a prefix, and URL-safe base64 (no padding) of the bytes below.

  version (1 byte, 1) | content | check (4)

`check` is the beginning of SHA-256 over all bytes before it; it distinguishes a mistyped token from a wrong
one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

_VERSION: Final = 1
_CHECK: Final = 4
_LONGEST: Final = 1024  # characters; a longer text is not a token


def content_of(text: str, prefix: str, what: str) -> bytes:
    """Returns the content of a token's text. `what`: the kind of token, for people. Raises INVALID_REQUEST;
    no message contains the text.
    """
    text = text.strip()
    if not text.startswith(prefix) or len(text) > _LONGEST:
        raise bad_token(f"a {what} begins with {prefix!r} and is one line: copy it whole")
    body = text.removeprefix(prefix)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_token("the join token is damaged: copy it again") from error
    content, check = data[:-_CHECK], data[-_CHECK:]
    if not content or hashlib.sha256(content).digest()[:_CHECK] != check:
        raise bad_token("the join token is damaged: copy it again, whole")
    if content[0] != _VERSION:
        raise bad_token(f"the join token has version {content[0]}; this version of Treecast reads {_VERSION}")
    return content[1:]


def text_of(content: bytes, prefix: str) -> str:
    """Returns the text of a token with this content."""
    data = bytes([_VERSION]) + content
    check = hashlib.sha256(data).digest()[:_CHECK]
    return prefix + base64.urlsafe_b64encode(data + check).rstrip(b"=").decode()


def bad_token(detail: str) -> TreecastError:
    return TreecastError(Fault.INVALID_REQUEST, detail)
