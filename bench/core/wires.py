"""Virtual cables between a switch and its traffic sources: two network namespaces of this machine. Needs
root.

    with Wires(5) as wires: ...      sw0 ... sw4 in wires.switch, far0 ... far4 in wires.far

The far ends have no address and nobody listens there, so the kernel's counts at them are the switch's output.
There is no IPv6, no offload and no ARP: every frame on a cable is from the load or the switch.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial

from treecast.middleware.dataplane.lab import namespaces
from treecast.middleware.dataplane.lab.execute import interface_counters
from treecast.middleware.dataplane.softswitch.links import open_end

_SECONDS = 10.0
_LONGEST = 65_536


class Wires:
    """`count` cables, from `__enter__` to `__exit__`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.switch, self.far = (f"treecast-bench-{os.getpid()}-{end}" for end in ("switch", "far"))

    def __enter__(self) -> Wires:
        try:
            for name in (self.switch, self.far):
                namespaces.create(name)
            for number in range(self.count):
                self._cable(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _cable(self, number: int) -> None:
        ends = {self.switch: f"sw{number}", self.far: f"far{number}"}
        (near_space, near), (far_space, far) = ends.items()
        words = ["ip", "link", "add", near, "netns", near_space, "type", "veth"]
        subprocess.run([*words, "peer", "name", far, "netns", far_space], check=True)
        for space, interface in ends.items():
            namespaces.inside(space, partial(_quiet, interface))
            subprocess.run(["ip", "-n", space, "link", "set", interface, "arp", "off", "up"], check=True)

    def __exit__(self, *_: object) -> None:
        for name in (self.switch, self.far):
            namespaces.remove(name)

    def check(self, sent: Sequence[bytes], expected: Sequence[bytes]) -> None:
        """Checks that each frame sent into the first port leaves all others as expected, byte for byte.

        Raises RuntimeError otherwise.
        """
        self._settle()
        ends = namespaces.inside(self.far, lambda: [open_end(f"far{n}") for n in range(self.count)])
        try:
            for frame, wanted in zip(sent, expected, strict=True):
                ends[0].send(frame)
                for port, end in enumerate(ends[1:], 1):
                    if not select.select([end], [], [], _SECONDS)[0]:
                        raise RuntimeError(f"nothing comes out of port {port}")
                    got = end.recv(_LONGEST)
                    if got != wanted:
                        raise RuntimeError(f"port {port} sends {got[:60].hex()}, not {wanted[:60].hex()}")
        finally:
            for end in ends:
                end.close()

    def _settle(self) -> None:
        """Waits until no frame arrives any more, so that the switch's buffers are empty after a flood."""
        ports, before = range(self.count), -1
        while before != (now := self.arrived(ports)):
            before = now
            time.sleep(0.5)

    def arrived(self, ports: Sequence[int]) -> int:
        """Returns the kernel's counts of frames that reached the far ends of these ports."""
        counts: Sequence[Mapping[str, int]] = namespaces.inside(
            self.far, lambda: [interface_counters(f"far{port}") for port in ports]
        )
        return sum(one["rx_packets"] for one in counts)

    def command(self, space: str, core: int, command: Sequence[str]) -> list[str]:
        """Returns the command, run in one of the namespaces with all its threads on one core."""
        cores = sorted(os.sched_getaffinity(0))
        pinned = ["taskset", "-c", str(cores[core % len(cores)])]
        return ["ip", "netns", "exec", space, *pinned, *command]


def _quiet(interface: str) -> None:
    namespaces.turn_offloads_off(interface)
    namespaces.write_setting(f"net/ipv6/conf/{interface}/disable_ipv6", "1")
