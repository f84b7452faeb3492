"""`FabricState`: a host's fabric, as shown to operators."""

from __future__ import annotations

from msgspec import Struct

from .carriers.carrier import CarrierState
from .paths import NarrowPath
from .sockets.interfaces import Interface


class FabricState(Struct, frozen=True):
    """State shown by `treecast doctor` and `treecast streams`."""

    host: int
    address: tuple[str, int]
    interface: Interface
    segment_bytes: int  # the longest that is sent
    narrow: tuple[NarrowPath, ...]  # paths on which they do not arrive
    receive_buffer: int  # as granted by the kernel, which counts twice the requested size
    carriers: tuple[CarrierState, ...]
    origins: int
    received_streams: int
