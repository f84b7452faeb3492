"""The switch as a process: interfaces, a program, a P4Runtime endpoint, one ready line, SIGTERM.

    ready name=s1 p4runtime=127.0.0.1:9559 ports=1:eth1,2:eth2 program=router.p4

It also runs without a program, and then drops everything until a controller sets one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from finsy.proto import p4r
from msgspec import Struct

from treecast.middleware.dataplane.p4 import Stats, load_device_config
from treecast.middleware.dataplane.p4runtime.clients import StreamCounters
from treecast.middleware.dataplane.p4runtime.device import Device, DeviceSettings
from treecast.middleware.dataplane.p4runtime.server import P4RuntimeServer

from .links import LinkCounters, Links


class SwitchSettings(Struct, frozen=True):
    """`interfaces` by port number; `p4runtime` as HOST:PORT, unix:PATH or "off"; `config` a device config."""

    name: str
    interfaces: dict[int, str]
    p4runtime: str = "127.0.0.1:9559"
    config: bytes = b""
    cpu_port: int | None = 510
    drop_port: int = 511
    device_id: int = 1
    seed: int = 0


class Report(Struct):
    """A switch's counts, for `--stats FILE`."""

    name: str
    streams: StreamCounters
    links: LinkCounters
    pipeline: Stats | None
    without_pipeline: int = 0
    short_packet_ins: int = 0


class SoftwareSwitch:
    """A device between packet sockets and controllers. `start` raises OSError, P4Error or ValueError."""

    def __init__(self, settings: SwitchSettings) -> None:
        self.settings = settings
        self.links = Links(settings.interfaces)
        device = DeviceSettings(
            tuple(settings.interfaces),
            settings.device_id,
            settings.cpu_port,
            settings.drop_port,
            settings.seed,
        )
        self.device = Device(device, load_device_config)
        self.server = P4RuntimeServer(self.device, self.links.send)
        self.address = "off"

    async def start(self) -> None:
        if self.settings.config:
            config = p4r.ForwardingPipelineConfig(p4_device_config=self.settings.config)
            self.device.commit(self.device.verify(config, time.monotonic()))
        if self.settings.p4runtime != "off":
            self.address = await self.server.start(self.settings.p4runtime)
        loop = asyncio.get_running_loop()
        for port, end in self.links.ports:
            loop.add_reader(end.fileno(), self._readable, port)

    def _readable(self, port: int) -> None:
        """Processes one batch of a port; further frames wait for the next turn of the loop."""
        frames = self.links.receive(port)
        if frames:
            self.links.send(self.server.receive(frames))

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        for _, end in self.links.ports:
            loop.remove_reader(end.fileno())
        await self.server.close()
        self.links.close()

    def report(self) -> Report:
        """Returns all present counts."""
        self.links.count_missed()
        active = self.device.active
        return Report(
            self.settings.name,
            self.server.counters,
            self.links.counters,
            None if active is None else active.switch.stats(),
            self.device.without_pipeline,
            self.device.short_packet_ins,
        )

    def ready_line(self) -> str:
        ports = ",".join(f"{port}:{name}" for port, name in self.settings.interfaces.items()) or "none"
        program = "none" if self.device.active is None else self.device.active.program.name
        return f"ready name={self.settings.name} p4runtime={self.address} ports={ports} program={program}"


async def serve(
    settings: SwitchSettings, say: Callable[[str], None], *, stats: Path | None = None
) -> SoftwareSwitch:
    """Runs until SIGTERM or SIGINT; SIGUSR1 writes the counts to `stats`, the end does too."""
    switch = SoftwareSwitch(settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if stats is not None:
        loop.add_signal_handler(signal.SIGUSR1, write_stats, switch, stats)
    try:
        await switch.start()
        say(switch.ready_line())
        gc.collect()
        gc.freeze()
        await ended.wait()
        if stats is not None:
            write_stats(switch, stats)
    finally:
        await switch.close()
    return switch


def write_stats(switch: SoftwareSwitch, path: Path) -> None:
    """Writes the counts as JSON, atomically."""
    import msgspec

    beside = path.with_name(f"{path.name}.new")
    with contextlib.suppress(OSError):
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(switch.report()), indent=2) + b"\n")
        os.replace(beside, path)
