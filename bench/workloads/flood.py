"""STARE publishes at one port of a switch, faster than it can forward them; the output of the others is
counted.

As a program it is the load itself: `python -m bench.workloads.flood INTERFACE PAYLOAD STATES SECONDS`.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.core.measure import Metric, Values, Workload
from bench.core.peer import Peer
from bench.core.process import ServerProcess
from bench.core.wires import Wires
from treecast.middleware.wire.stare import FIRST_STATE, StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, encode_frame

FORWARDED = Metric("forwarded", "packets/s", True, 1 / 3)
COPIES = Metric("copies out", "packets/s", True)
SWITCH_CPU = Metric("switch CPU", "µs/packet", False)
_BATCH = 64
_ETH_P_ALL = 3
_PACKET_QDISC_BYPASS, _SOL_PACKET = 20, 263


class Flood(Workload[Peer]):
    """Publishes of `states` states with `payload` bytes; each goes to all of the other ports."""

    floor = True

    def __init__(self, wires: Wires, payload: int, states: int, seconds: float) -> None:
        self._wires, self._payload, self._states, self._seconds = wires, payload, states, seconds
        self.outputs = wires.count - 1
        self.name = f"{payload} B of {states} states to {self.outputs} ports"

    def run(self, peer: Peer, number: int) -> Values:
        if not peer.is_floor:
            self._wires.check(frames(self._payload, self._states), frames(self._payload, self._states, 15))
        warm = min(self._seconds, 2.0)
        words = ["-m", "bench.workloads.flood", "far0", str(self._payload), str(self._states)]
        command = [sys.executable, *words, str(warm + self._seconds + 2.0)]
        with tempfile.TemporaryDirectory(prefix="flood-") as folder:
            log = Path(folder) / "flood.log"
            load = ServerProcess(self._wires.command(self._wires.far, 0, command), log)
            try:
                return self._measure(peer, load, warm)
            finally:
                load.stop()

    def _measure(self, peer: Peer, load: ServerProcess, warm: float) -> Values:
        ports = range(1, self._wires.count)
        load.wait_until(lambda: self._wires.arrived(ports) > 0, 30, 0.05)
        time.sleep(warm)  # the switch's own caches fill
        before, cpu, start = self._wires.arrived(ports), peer.cpu_seconds(), time.monotonic()
        time.sleep(self._seconds)  # the kernel counts meanwhile
        copies, took = self._wires.arrived(ports) - before, time.monotonic() - start
        used = peer.cpu_seconds() - cpu
        packets = copies / self.outputs
        if not packets:
            raise RuntimeError("nothing came out of the switch")
        return {FORWARDED: packets / took, COPIES: copies / took, SWITCH_CPU: 1e6 * used / packets}


def frames(payload: int, states: int, ttl: int = 16) -> list[bytes]:
    """Returns a publish of each state."""
    header = [StareHeader(StareKind.PUBLISH, state, 1, 1) for state in state_ids(states)]
    mac, address = bytes([2, 0, 0, 0, 0, 1]), bytes([10, 0, 0, 1])
    return [encode_frame(StareFrame(one, mac, address, bytes(payload), ttl=ttl)) for one in header]


def state_ids(states: int) -> range:
    return range(FIRST_STATE, FIRST_STATE + states)


class _Message(ctypes.Structure):
    """struct mmsghdr of Linux on 64 bits."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    ]


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def blast(interface: str, packets: Sequence[bytes], seconds: float) -> int:
    """Sends them over and over with sendmmsg; how many were sent."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as end:
        end.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, struct.pack("i", 1))
        end.bind((interface, _ETH_P_ALL))
        count = max(_BATCH, len(packets))
        kept = [ctypes.create_string_buffer(packets[n % len(packets)]) for n in range(count)]
        vectors = (_Vector * count)(
            *(_Vector(ctypes.addressof(one), len(one) - 1) for one in kept)  # without the final 0
        )
        size = ctypes.sizeof(_Vector)
        messages = (_Message * count)(
            *(_Message(vectors=ctypes.addressof(vectors) + n * size, vector_count=1) for n in range(count))
        )
        sendmmsg, sent = ctypes.CDLL(None).sendmmsg, 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sent += max(0, sendmmsg(end.fileno(), messages, count, 0))
        return sent


if __name__ == "__main__":
    _, interface, payload, states, seconds = sys.argv
    print(blast(interface, frames(int(payload), int(states)), float(seconds)))
