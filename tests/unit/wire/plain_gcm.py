"""AES-256-GCM as FIPS 197 and NIST SP 800-38D write it, slow and without a library.

It is the reference of `fabric/sealing.py`, and implements `wire.segment_keys.Aead`.
"""

from __future__ import annotations

from hmac import compare_digest

from treecast.middleware.wire.segment_keys import Data

_R = 0xE1 << 120


def _times(a: int, b: int) -> int:
    """Multiplies in GF(2^8) of AES."""
    found = 0
    while b:
        if b & 1:
            found ^= a
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return found


def _sbox() -> list[int]:
    inverse = [0] + [next(y for y in range(256) if _times(x, y) == 1) for x in range(1, 256)]
    box = []
    for x in inverse:
        turned = x
        for shift in range(1, 5):
            turned ^= (x << shift | x >> (8 - shift)) & 0xFF
        box.append(turned ^ 0x63)
    return box


SBOX = _sbox()


def _schedule(key: bytes) -> list[bytes]:
    words = [key[at : at + 4] for at in range(0, 32, 4)]
    constant = 1
    for number in range(8, 60):
        word = words[-1]
        if number % 8 == 0:
            turned = word[1:] + word[:1]
            word = bytes([SBOX[one] for one in turned])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant = _times(constant, 2)
        elif number % 8 == 4:
            word = bytes([SBOX[one] for one in word])
        words.append(bytes([a ^ b for a, b in zip(words[number - 8], word, strict=True)]))
    return [b"".join(words[at : at + 4]) for at in range(0, 60, 4)]


def _mixed(state: list[int]) -> list[int]:
    found = []
    for at in range(0, 16, 4):
        a, b, c, d = state[at : at + 4]
        for w, x, y, z in ((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c)):
            found.append(_times(w, 2) ^ _times(x, 3) ^ y ^ z)
    return found


class PlainGcm:
    """One key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._rounds = _schedule(key)
        self._h = int.from_bytes(self._block(bytes(16)), "big")

    def _block(self, data: bytes) -> bytes:
        state = [a ^ b for a, b in zip(data, self._rounds[0], strict=True)]
        for number, key in enumerate(self._rounds[1:], 1):
            state = [SBOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
            if number < len(self._rounds) - 1:
                state = _mixed(state)
            state = [a ^ b for a, b in zip(state, key, strict=True)]
        return bytes(state)

    def _counted(self, nonce: bytes, data: bytes) -> bytes:
        found = bytearray()
        for number, at in enumerate(range(0, len(data), 16), 2):
            stream = self._block(nonce + number.to_bytes(4, "big"))
            found += bytes([a ^ b for a, b in zip(data[at : at + 16], stream, strict=False)])
        return bytes(found)

    def _multiplied(self, x: int) -> int:
        found, v = 0, self._h
        for bit in range(127, -1, -1):
            if x >> bit & 1:
                found ^= v
            v = v >> 1 ^ (_R if v & 1 else 0)
        return found

    def _tag(self, nonce: bytes, hidden: bytes, header: bytes) -> bytes:
        parts = [one + bytes(-len(one) % 16) for one in (header, hidden)]
        lengths = (8 * len(header)).to_bytes(8, "big") + (8 * len(hidden)).to_bytes(8, "big")
        found, hashed = 0, b"".join((*parts, lengths))
        for at in range(0, len(hashed), 16):
            found = self._multiplied(found ^ int.from_bytes(hashed[at : at + 16], "big"))
        first = self._block(nonce + b"\0\0\0\1")
        return bytes([a ^ b for a, b in zip(found.to_bytes(16, "big"), first, strict=True)])

    def seal(self, nonce: bytes, data: Data, header: bytes) -> bytes:
        hidden = self._counted(nonce, bytes(data))
        return hidden + self._tag(nonce, hidden, header)

    def open(self, nonce: bytes, sealed: Data, header: bytes) -> bytes | None:
        hidden, tag = bytes(sealed[:-16]), bytes(sealed[-16:])
        if not compare_digest(self._tag(nonce, hidden, header), tag):
            return None
        return self._counted(nonce, hidden)
