"""Network interfaces as the ports of a switch: whole Ethernet frames, many per turn (AF_PACKET, Linux, root).

A VLAN tag that the kernel strips from a frame before delivery is lost, as in `lab.relay`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from treecast.middleware.dataplane.p4 import Out

_ETH_P_ALL: Final = 3
_SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 1, 1
_PACKET_STATISTICS: Final = 6
_PACKET_QDISC_BYPASS: Final = 20
_PACKET_IGNORE_OUTGOING: Final = 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES: Final = 8 * 1024 * 1024
_MOST_FRAME: Final = 65_600
BATCH: Final = 256


class LinkCounters(Struct):
    """`refused`: frames that the kernel would not send. `missed`: those that it had no room for before we
    read."""

    refused: int = 0
    missed: int = 0
    unplugged: int = 0


class Links:
    """The packet sockets of a switch by port number."""

    def __init__(self, interfaces: dict[int, str]) -> None:
        """Raises OSError if an interface is not there, or the right to open packet sockets is missing."""
        self.counters = LinkCounters()
        self._ends: dict[int, socket.socket] = {}
        try:
            for port, interface in interfaces.items():
                self._ends[port] = open_end(interface)
        except OSError:
            self.close()
            raise

    @property
    def ports(self) -> Iterable[tuple[int, socket.socket]]:
        """The port numbers and their sockets, to wait for."""
        return self._ends.items()

    def receive(self, port: int) -> list[tuple[int, bytes]]:
        """Returns the frames that wait at a port, at most BATCH."""
        receive = self._ends[port].recv
        frames: list[tuple[int, bytes]] = []
        with suppress(OSError):  # nothing more to read, or the interface went down
            for _ in range(BATCH):
                frames.append((port, receive(_MOST_FRAME)))
        return frames

    def send(self, outs: Sequence[Out]) -> None:
        """Sends frames to their ports, in order. Frames that cannot be sent are counted and lost, as on a
        wire.
        """
        for out in outs:
            end = self._ends.get(out.port)
            if end is None:
                self.counters.unplugged += 1
                continue
            try:
                end.send(out.packet)
            except OSError:
                self.counters.refused += 1

    def count_missed(self) -> int:
        """Adds the frames that the kernel missed; its counters restart with each reading."""
        for end in self._ends.values():
            _, missed = struct.unpack("II", end.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            self.counters.missed += missed
        return self.counters.missed

    def close(self) -> None:
        for end in self._ends.values():
            end.close()
        self._ends.clear()


def open_end(interface: str) -> socket.socket:
    """Returns a packet socket that hears every frame of an interface but those that it sends itself."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # deaf until it is bound
    try:
        end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        end.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        with suppress(PermissionError):  # beyond the machine's limits: only in the first user namespace
            end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
        end.bind((interface, _ETH_P_ALL))
        membership = struct.pack("iHH8s", socket.if_nametoindex(interface), _PACKET_MR_PROMISC, 0, b"")
        end.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        end.setblocking(False)
    except OSError as error:
        end.close()
        raise OSError(error.errno, f"interface {interface}: {error.strerror}") from error
    return end
