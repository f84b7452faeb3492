"""SIDs of SRv6: a node and a function there (RFC 8986, section 3.1).

  | locator (block and node) | function | argument |      128 bits in all; the rest is zero

The locator is a prefix that is routed to the node; the function names a behavior there. Each replication
segment (RFC 9524) of a node has its own replication SID, which identifies it.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

SID_BITS: Final = 128


class Behavior(enum.IntEnum):
    """Endpoint behaviors by their IANA code points."""

    END = 1
    END_X = 5
    END_DX6 = 16
    END_DT6 = 18
    END_REPLICATE = 75  # RFC 9524


class SidError(ValueError):
    """An address that is not a SID of a layout, or parts that do not fit it."""


class Sid(Struct, frozen=True):
    """The parts of a SID."""

    node: int
    function: int
    argument: int = 0


class Layout(Struct, frozen=True):
    """An operator's division of SIDs. `block` holds the first bits of every locator, packed in 16 bytes.

    By default a block has 32 bits, a node 16 and a function 32: a locator is a /48.
    """

    block: bytes
    block_bits: int = 32
    node_bits: int = 16
    function_bits: int = 32
    argument_bits: int = 0

    @property
    def locator_bits(self) -> int:
        """The length of a node's prefix."""
        return self.block_bits + self.node_bits

    @property
    def functions(self) -> int:
        """The number of functions per node."""
        return 1 << self.function_bits

    def check(self) -> Layout:
        """Returns itself. Raises SidError if the parts exceed 128 bits or the block has bits beyond its
        length.
        """
        parts = (self.block_bits, self.node_bits, self.function_bits, self.argument_bits)
        if min(parts) < 0 or sum(parts) > SID_BITS:
            raise SidError(f"parts of {', '.join(map(str, parts))} bits in {SID_BITS}")
        if len(self.block) != SID_BITS // 8 or int.from_bytes(self.block) << self.block_bits & (1 << 128) - 1:
            raise SidError(f"the block is not a prefix of {self.block_bits} bits")
        return self

    def locator(self, node: int) -> bytes:
        """Returns a node's prefix, as its first address. Raises SidError if the node does not fit."""
        return self.encode(Sid(node, 0))

    def encode(self, sid: Sid) -> bytes:
        """Returns the address. Raises SidError if a part does not fit."""
        found = int.from_bytes(self.block) >> SID_BITS - self.block_bits
        widths = (self.node_bits, self.function_bits, self.argument_bits)
        used = self.block_bits
        for value, bits in zip((sid.node, sid.function, sid.argument), widths, strict=True):
            if not 0 <= value < 1 << bits:
                raise SidError(f"{value} does not fit {bits} bits")
            found = found << bits | value
            used += bits
        return (found << SID_BITS - used).to_bytes(SID_BITS // 8)

    def decode(self, address: bytes) -> Sid:
        """Returns the parts. Raises SidError if the address is outside the block or has bits beyond the
        argument.
        """
        if len(address) != SID_BITS // 8:
            raise SidError(f"{len(address)} bytes are not an address")
        whole = int.from_bytes(address)
        left = SID_BITS - self.block_bits
        if whole >> left != int.from_bytes(self.block) >> left:
            raise SidError("the address is not in the block")
        parts = []
        for bits in (self.node_bits, self.function_bits, self.argument_bits):
            left -= bits
            parts.append(whole >> left & (1 << bits) - 1)
        if whole & (1 << left) - 1:
            raise SidError("the address has bits beyond the argument")
        return Sid(*parts)
