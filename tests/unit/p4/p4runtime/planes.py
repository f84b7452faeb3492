"""A served device, and a controller made of finsy's stubs alone, so that every message is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from finsy.proto import p4r, p4r_grpc, rpc_status
from tests.unit.p4.p4runtime.programs import KITCHEN

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.p4info import build_p4info
from treecast.middleware.dataplane.p4.p4runtime.schema import Schema
from treecast.middleware.dataplane.p4.runtime import Out
from treecast.middleware.dataplane.p4runtime.device import Device, DeviceSettings
from treecast.middleware.dataplane.p4runtime.server import P4RuntimeServer

WAIT = 30.0
SCHEMA = Schema(build_p4info(bundle.load(KITCHEN.encode())))


class Served:
    """A device behind a server on loopback. `sent` has the packets that controllers sent out at links."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[Out] = []
        self.device = Device(DeviceSettings(tuple(range(8))), bundle.load)
        self.server = P4RuntimeServer(self.device, self.sent.extend, lambda: self.now)
        self.address = ""

    def receive(self, port: int, frame: bytes) -> list[Out]:
        return self.server.receive([(port, frame)])


class Refused(Exception):
    """A call's status. `details` has one for each update of a Write."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(error.details())
        self.code = error.code()
        self.details: list[p4r.Error] = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = rpc_status.Status.FromString(value)
                assert status.code == error.code().value[0]
                for packed in status.details:
                    detail = p4r.Error()
                    assert packed.Unpack(detail)
                    self.details.append(detail)

    @property
    def codes(self) -> list[int]:
        return [detail.canonical_code for detail in self.details]


class Plane:
    """A controller: one channel, one stream."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.stub: Any = p4r_grpc.P4RuntimeStub(self.channel)
        self.stream: Any = None
        self.election_id = 1
        self.schema = SCHEMA

    async def arbitrate(self, election_id: int | None = 1, role: str = "", device_id: int = 1) -> None:
        """Sends an arbitration update; `heard` returns the reply."""
        if self.stream is None:
            self.stream = self.stub.StreamChannel()
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            update.election_id.low = election_id
            self.election_id = election_id
        if role:
            update.role.name = role
        await self.send(p4r.StreamMessageRequest(arbitration=update))

    async def send(self, message: p4r.StreamMessageRequest) -> None:
        await asyncio.wait_for(self.stream.write(message), WAIT)

    async def heard(self) -> p4r.StreamMessageResponse:
        """Returns the next message of the stream; raises Refused if it has ended."""
        try:
            message = await asyncio.wait_for(self.stream.read(), WAIT)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error
        if message is grpc.aio.EOF:
            raise EOFError
        assert isinstance(message, p4r.StreamMessageResponse)
        return message

    async def call(self, method: str, request: Any) -> Any:
        try:
            return await asyncio.wait_for(getattr(self.stub, method)(request), WAIT)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error

    async def set_pipeline(self, source: bytes = KITCHEN.encode(), **fields: Any) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1, action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        )
        request.election_id.low = self.election_id
        request.config.p4_device_config = source
        for name, value in fields.items():
            setattr(request, name, value)
        await self.call("SetForwardingPipelineConfig", request)

    async def write(
        self,
        *updates: p4r.Update,
        atomicity: p4r.WriteRequest.Atomicity.ValueType = p4r.WriteRequest.CONTINUE_ON_ERROR,
    ) -> None:
        request = p4r.WriteRequest(device_id=1, updates=updates, atomicity=atomicity)
        request.election_id.low = self.election_id
        await self.call("Write", request)

    async def read(self, *filters: p4r.Entity) -> list[p4r.Entity]:
        found: list[p4r.Entity] = []
        try:
            async for response in self.stub.Read(p4r.ReadRequest(device_id=1, entities=filters)):
                found.extend(response.entities)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error
        return found

    # --- messages by name

    def entry(
        self, table: str, *matches: p4r.FieldMatch, action: str = "", priority: int = 0, **params: int
    ) -> p4r.TableEntry:
        """Returns an entry with an action, by names."""
        message = p4r.TableEntry(
            table_id=self.schema.tables.names[f"MyIngress.{table}"].id, match=matches, priority=priority
        )
        if action:
            message.action.action.CopyFrom(self.action(action, **params))
        return message

    def action(self, name: str, **params: int) -> p4r.Action:
        found = self.schema.actions.names[name if name == "NoAction" else f"MyIngress.{name}"]
        message = p4r.Action(action_id=found.id)
        for field in found.params.values():
            message.params.add(param_id=field.id, value=number(params[field.name]))
        return message


def number(value: int) -> bytes:
    return value.to_bytes(max((value.bit_length() + 7) // 8, 1), "big")


def exact(value: int, field: int = 1) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, exact=p4r.FieldMatch.Exact(value=number(value)))


def lpm(value: int, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=number(value), prefix_len=length))


def insert(**entity: Any) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(**entity))


def modify(**entity: Any) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(**entity))


def delete(**entity: Any) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(**entity))


async def until(holds: Callable[[], object]) -> None:
    """Waits for an effect at the other end of a connection; fails after WAIT."""
    for _ in range(int(WAIT / 0.01)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"not within {WAIT} s")
