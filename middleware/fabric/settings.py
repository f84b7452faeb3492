"""Settings of a host's edge of the fabric for operators; those of streams are in `core.settings`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from .core.path_size import LEAST
from .core.settings import StreamSettings

LEAST_MTU: Final = LEAST  # bytes: segments without data are as long


class FabricSettings(Struct, frozen=True):
    """Sizes are in bytes. `stream` holds the defaults of all streams; its `mtu` is replaced by the edge's."""

    stream: StreamSettings = field(default_factory=StreamSettings)
    # Numeric; the interface of groups is the one with this address where the fabric listens on all.
    advertised: str = ""
    mtu: int = 0  # the longest packet with its IP header, at most the interface's MTU; 0: that
    receive_buffer: int = 8 << 20  # of each socket; the kernel may grant less (net.core.rmem_max)
    receive_at_once: int = 64 * 1024  # per socket and turn; then other work of the event loop runs
    send_buffer: int = 4 << 20
    queue_bytes: int = 8 << 20  # maximum data waiting for the kernel; more is dropped and repaired later
    assembly_bytes: int = 64 << 20  # incomplete messages of all streams
    ttl: int = 16  # of multicast
    loopback: bool = True  # multicast also reaches other fabric hosts of this machine
    offload: bool = True  # UDP_SEGMENT and UDP_GRO, if the kernel has them
    carriers: tuple[str, ...] = ("ip-multicast",)  # for sending to several hosts, in order of preference
    options: dict[str, str] = field(default_factory=dict)  # of carriers, by name
