"""A switch for its control plane and its links: pipelines can be set while it runs, packets come in and go
out.

It has no clock and no socket: `now` is an argument; packets for links and messages for controllers are
returned. The software switch, the emulator and tests connect the same device to their own links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from finsy.proto import p4r
from msgspec import Struct

from treecast.middleware.dataplane.p4 import (
    Code,
    ControlError,
    Entities,
    IdleEntry,
    Out,
    P4Error,
    P4RuntimeError,
    Program,
    Schema,
    Switch,
    build_p4info,
    carry_over,
    digest_list_to,
    entry_to,
    first_difference,
    invalid,
    layouts,
    names_of,
    packet_in,
    packet_out,
)

from .device_config import unwrapped

Load = Callable[[bytes], Program]
"""Makes a program from a device config. Raises P4Error or ValueError for an invalid one."""


class DeviceSettings(Struct, frozen=True):
    """A switch's settings before it runs a program. `cpu_port` None: no packets are sent to controllers."""

    ports: tuple[int, ...]
    device_id: int = 1
    cpu_port: int | None = 510
    drop_port: int = 511
    seed: int = 0


class Pipeline(Struct, frozen=True):
    """A program on its own switch, with its control-plane description."""

    config: p4r.ForwardingPipelineConfig
    program: Program
    schema: Schema
    switch: Switch
    entities: Entities


class Device:
    """One device. Messages for controllers wait in `told` until they are taken."""

    def __init__(self, settings: DeviceSettings, load: Load) -> None:
        self.settings = settings
        self._load = load
        self.ports = set(settings.ports)
        self.active: Pipeline | None = None
        self.saved: Pipeline | None = None
        self.short_packet_ins = 0
        self.without_pipeline = 0

    # --- pipelines

    def verify(self, config: p4r.ForwardingPipelineConfig, now: float) -> Pipeline:
        """Returns the pipeline of a config, not yet in use. Pure: it may run in a thread.

        Raises INVALID_ARGUMENT if the program is refused or does not match the P4Info.
        """
        try:
            program = self._load(unwrapped(config.p4_device_config))
            info = build_p4info(program)
        except (P4Error, ValueError) as error:
            raise invalid(f"the device config is refused: {error}") from error
        if config.HasField("p4info"):
            difference = first_difference(config.p4info, info)
            if difference is not None:
                raise invalid(f"the P4Info is not that of the device config: {difference}")
        else:
            config.p4info.CopyFrom(info)
        switch = Switch(
            program,
            ports=self.settings.ports,
            seed=self.settings.seed,
            start=now,
            cpu_port=self.settings.cpu_port,
            drop_port=self.settings.drop_port,
        )
        try:
            names = names_of(program)
        except ValueError as error:
            raise invalid(f"the device config is refused: {error}") from error
        wires = {name: tuple((p.width, p.number) for p in parts) for name, parts in layouts(program).items()}
        schema = Schema(config.p4info, names, wires)
        return Pipeline(config, program, schema, switch, Entities(schema, switch.control))

    def save(self, pipeline: Pipeline) -> None:
        """Controllers speak to it from now on; packets go through the active one until `commit`."""
        self.saved = pipeline

    def commit(self, pipeline: Pipeline | None = None) -> None:
        """Makes packets use the pipeline from now on; without one, the saved pipeline with its entries."""
        chosen = pipeline or self.saved
        if chosen is None:
            raise P4RuntimeError(Code.NOT_FOUND, "no pipeline config was saved")
        self.active, self.saved = chosen, None
        for port in self.ports ^ set(self.settings.ports):
            chosen.switch.set_port(port, port in self.ports)

    def reconcile(self, pipeline: Pipeline, now: float) -> None:
        """Does as `commit`, keeping everything written to the active pipeline. Raises INVALID_ARGUMENT if
        part of that does not fit; nothing changes then.
        """
        if self.active is not None:
            old = self.active
            try:
                for name, known in old.schema.names.items():
                    if name in pipeline.schema.names:
                        pipeline.schema.names[name].adopt(known)
                carry_over(old.switch.control, old.program, pipeline.switch.control, pipeline.program, now)
            except (ControlError, ValueError) as error:
                raise invalid(f"the state cannot be kept: {error}") from error
        self.commit(pipeline)

    @property
    def controlled(self) -> Pipeline:
        """The pipeline for writes and reads."""
        found = self.saved or self.active
        if found is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline config is set")
        return found

    # --- links

    def set_port(self, port: int, up: bool) -> None:
        """Adds or removes a port for a link."""
        (self.ports.add if up else self.ports.discard)(port)
        if self.active is not None:
            self.active.switch.set_port(port, up)

    def receive(
        self, packets: Sequence[tuple[int, bytes]], now: float
    ) -> tuple[list[Out], list[p4r.StreamMessageResponse]]:
        """Processes packets from links. Returns packets for links, and messages for controllers."""
        if self.active is None:
            self.without_pipeline += len(packets)
            return [], []
        return self._sorted(self.active, self.active.switch.receive_many(packets, now))

    def send(self, message: p4r.PacketOut, now: float) -> tuple[list[Out], list[p4r.StreamMessageResponse]]:
        """Processes a packet from a controller."""
        active, cpu_port = self.active, self.settings.cpu_port
        if active is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline config is set")
        if cpu_port is None:
            raise P4RuntimeError(Code.UNIMPLEMENTED, "this switch has no CPU port")
        data = packet_out(active.schema, message)
        return self._sorted(active, active.switch.receive(cpu_port, data, now))

    def _sorted(
        self, active: Pipeline, outs: Iterable[Out]
    ) -> tuple[list[Out], list[p4r.StreamMessageResponse]]:
        to_links, told = [], []
        for out in outs:
            if out.port != self.settings.cpu_port:
                to_links.append(out)
                continue
            message = packet_in(active.schema, out.packet)
            if message is None:
                self.short_packet_ins += 1
            else:
                told.append(p4r.StreamMessageResponse(packet=message))
        return to_links, told

    # --- what the switch tells by itself

    def poll(self, now: float, timestamp: int) -> list[p4r.StreamMessageResponse]:
        """Digests that are due and entries that have been idle. `timestamp`: nanoseconds since 1970."""
        active = self.active
        if active is None:
            return []
        control, schema = active.switch.control, active.schema
        told = [
            p4r.StreamMessageResponse(digest=digest_list_to(schema, found, timestamp))
            for found in control.take_digests(now)
        ]
        idle = control.idle_entries(now)
        if idle:
            notification = p4r.IdleTimeoutNotification(timestamp=timestamp)
            notification.table_entry.extend(_idle_to(schema, one) for one in idle)
            told.append(p4r.StreamMessageResponse(idle_timeout_notification=notification))
        return told

    def next_poll_at(self) -> float | None:
        """Returns when digests are due without another packet."""
        return None if self.active is None else self.active.switch.control.next_digest_at()

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Acknowledges a digest list for a controller."""
        if self.active is None or message.digest_id not in self.active.schema.digests:
            raise invalid(f"there is no digest with id {message.digest_id:#x}")
        name = self.active.schema.digests.find(message.digest_id).name
        self.active.switch.control.digest(name).ack(message.list_id)


def _idle_to(schema: Schema, idle: IdleEntry) -> p4r.TableEntry:
    message = entry_to(schema, schema.tables.names[idle.table], idle.entry)
    message.ClearField("action")
    return message
