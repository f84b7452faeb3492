"""What operators may set of a host's edge of the fabric; what of streams is in `core.settings`."""

from __future__ import annotations

from msgspec import Struct, field

from .core.settings import StreamSettings


class FabricSettings(Struct, frozen=True):
    """Sizes in bytes. `stream` holds the defaults of all streams; its `mtu` is replaced by the edge's."""

    stream: StreamSettings = field(default_factory=StreamSettings)
    mtu: int = 0  # of a packet with its IP header; 0 takes the interface's
    receive_buffer: int = 8 << 20  # of each socket; the kernel may give less (net.core.rmem_max)
    bursts: int = 4  # that are taken from a socket in a turn; then other work of the event loop has its turn
    send_buffer: int = 4 << 20
    queue_bytes: int = 8 << 20  # what waits for the kernel to take it; more is dropped, and repaired later
    assembly_bytes: int = 64 << 20  # incomplete messages of all streams
    ttl: int = 16  # of multicast
    loopback: bool = True  # multicast reaches other fabric hosts of this machine too
    offload: bool = True  # UDP_SEGMENT and UDP_GRO, where the kernel has them
    carriers: tuple[str, ...] = ("ip-multicast",)  # of what goes to several hosts, the preferred first
    options: dict[str, str] = field(default_factory=dict)  # of carriers, by their names
