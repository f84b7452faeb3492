"""The P4Runtime service over gRPC, in front of one device.

Everything runs on one event loop: a write is whole before the next packet, and a read sees one state.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

import grpc
import grpc.aio
from finsy.proto import p4r, p4r_grpc, rpc_status

from treecast.middleware.dataplane.p4 import (
    DONE,
    Arbitration,
    Code,
    Notice,
    Out,
    Outcome,
    P4RuntimeError,
    Roles,
    invalid,
    not_found,
)
from treecast.middleware.model.logs import Log

from .clients import Client, StreamCounters
from .device import Device, Pipeline

API_VERSION = "1.4.1"
ENTITIES_A_MESSAGE = 256
MOST_READS = 4  # concurrent ones: each holds its results in memory
MOST_MESSAGE = 64 * 1024 * 1024
# A client accepts 8 KiB of metadata by default; finsy 64. Above this size the details are omitted.
MOST_DETAILS = 48 * 1024
IDLE_SECONDS = 0.5
_SOCKET_MODE = 0o660  # of a Unix socket: for the user and its group
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MOST_MESSAGE),
    ("grpc.max_send_message_length", MOST_MESSAGE),
)
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_Context: TypeAlias = Any  # grpc.aio.ServicerContext; grpc has no types
_log = Log(__name__)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class P4RuntimeServer:
    """Serves one device. `transmit` takes packets for links that a controller's packet caused."""

    def __init__(
        self,
        device: Device,
        transmit: Callable[[Sequence[Out]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device = device
        self.counters = StreamCounters()
        self._transmit, self._clock = transmit, clock
        self._arbitration, self._roles = Arbitration(), Roles()
        self._server: grpc.aio.Server | None = None
        self._polling: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.committing = asyncio.Lock()
        self.reading = asyncio.Semaphore(MOST_READS)

    # --- life

    async def start(self, address: str) -> str:
        """Listens at HOST:PORT or unix:PATH, unencrypted. Returns the address with the chosen port. Raises
        OSError.
        """
        server = grpc.aio.server(options=_OPTIONS)
        p4r_grpc.add_P4RuntimeServicer_to_server(_Service(self), server)
        try:
            bound = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"{address} cannot be listened at: {error}") from error
        await server.start()
        self._server = server
        if address.startswith("unix:"):
            os.chmod(address.removeprefix("unix:"), _SOCKET_MODE)
        elif not _is_loopback(address.rpartition(":")[0].strip("[]")):
            _log.warning(
                "switch can be programmed by anybody who reaches this address",
                address=address,
                advice="keep it in a network of controllers",
            )
        self._polling = asyncio.create_task(self._poll())
        return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{bound}"

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)

    # --- what the switch tells

    def receive(self, packets: Sequence[tuple[int, bytes]]) -> list[Out]:
        """Processes packets from links, notifies controllers, and returns packets for links."""
        outs, told = self.device.receive(packets, self._clock())
        self._tell(told)
        if self.device.next_poll_at() is not None:
            self._wake.set()
        return outs

    async def _poll(self) -> None:
        """Digests when they are due, idle entries now and then."""
        while True:
            self._wake.clear()
            now = self._clock()
            self._tell(self.device.poll(now, time.time_ns()))
            due = self.device.next_poll_at()
            wait = IDLE_SECONDS if due is None else min(max(due - now, 0.0), IDLE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait)

    def _tell(self, messages: Sequence[p4r.StreamMessageResponse]) -> None:
        if not messages:
            return
        primaries = self._arbitration.primaries()
        if not primaries:
            self.counters.unheard += len(messages)
        for client in primaries:
            assert isinstance(client, Client)
            role = self._arbitration.role_of(client)
            for message in messages:
                heard = self._roles.told(role, message)
                if heard is not None:
                    self.counters.packet_ins += heard.HasField("packet")
                    client.tell(heard)

    # --- streams

    def heard(self, client: Client, request: p4r.StreamMessageRequest) -> None:
        """Handles one message of a controller. Raises P4RuntimeError, which ends its stream."""
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitrate(client, request.arbitration)
            return
        try:
            if not self._arbitration.is_primary(client):
                raise P4RuntimeError(Code.PERMISSION_DENIED, "only the primary may send this")
            if kind == "packet":
                self._packet_out(request.packet)
            elif kind == "digest_ack":
                self.device.acknowledge(request.digest_ack)
            else:
                raise P4RuntimeError(Code.UNIMPLEMENTED, f"messages of kind {kind} are not known")
        except P4RuntimeError as error:
            self.counters.errors += 1
            client.tell(_stream_error(request, error))

    def _packet_out(self, message: p4r.PacketOut) -> None:
        outs, told = self.device.send(message, self._clock())
        self.counters.packet_outs += 1
        self._transmit(outs)
        self._tell(told)

    def _arbitrate(self, client: Client, message: p4r.MasterArbitrationUpdate) -> None:
        self.check_device(message.device_id)
        election_id = _uint128(message.election_id) if message.HasField("election_id") else None
        name = role_name(message.role)
        config = self._roles.read(name, message.role)
        notices = self._arbitration.update(client, name, election_id)
        if self._arbitration.is_primary(client):
            self._roles.set(name, config)
        self._notify(notices)

    def left(self, client: Client) -> None:
        """Handles the end of a stream."""
        self._notify(self._arbitration.leave(client))

    def _notify(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            assert isinstance(notice.client, Client)
            notice.client.notify(self._notification(notice))

    def _notification(self, notice: Notice) -> p4r.StreamMessageResponse:
        update = p4r.MasterArbitrationUpdate(device_id=self.device.settings.device_id)
        if notice.role:
            update.role.name = notice.role
            if (config := self._roles.get(notice.role)) is not None:
                update.role.config.CopyFrom(config.message)
        if notice.election_id is not None:
            high, low = divmod(notice.election_id, 1 << 64)
            update.election_id.high, update.election_id.low = high, low
        text = {Code.OK: "you are primary", Code.ALREADY_EXISTS: "another client is primary"}
        update.status.code = notice.code
        update.status.message = text.get(notice.code, "there is no primary")
        return p4r.StreamMessageResponse(arbitration=update)

    # --- calls

    def check_device(self, device_id: int) -> None:
        if device_id != self.device.settings.device_id:
            raise not_found(f"there is no device {device_id}; this is {self.device.settings.device_id}")

    def check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        """Checks device, role and election id of a changing call, in the specification's order."""
        self.check_device(request.device_id)
        role = _role_of(request)
        if not self._arbitration.knows_role(role):
            raise not_found(f"there is no role {role!r}")
        election_id = _uint128(request.election_id) if request.HasField("election_id") else None
        if not self._arbitration.may_write(role, election_id):
            raise P4RuntimeError(Code.PERMISSION_DENIED, "this election id is not the primary's")

    def write(self, request: p4r.WriteRequest) -> list[Outcome]:
        """Executes a write; returns one outcome for each update. Raises P4RuntimeError if none was
        attempted.
        """
        self.check_primary(request)
        self._roles.check_write(_role_of(request), request)
        pipeline = self.device.controlled
        outcomes = pipeline.entities.write(request.updates, request.atomicity, self._clock())
        self._wake.set()
        return outcomes

    def read(self, request: p4r.ReadRequest) -> list[p4r.Entity]:
        """Returns all that the filters let through, as of now."""
        self.check_device(request.device_id)
        found = self.device.controlled.entities.read(request.entities, self._clock())
        return [entity for entity in found if self._roles.covers(request.role, entity)]

    async def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Programs are checked in a thread; packets go through the old one meanwhile."""
        self.check_primary(request)
        self._roles.check_pipeline(_role_of(request))
        actions = p4r.SetForwardingPipelineConfigRequest
        if request.action == actions.COMMIT:
            if request.HasField("config"):
                raise invalid("COMMIT takes no config: it commits the one that was saved")
            self.device.commit()
            return
        if request.action not in (
            actions.VERIFY,
            actions.VERIFY_AND_SAVE,
            actions.VERIFY_AND_COMMIT,
            actions.RECONCILE_AND_COMMIT,
        ):
            raise invalid("the action is missing")
        if not request.HasField("config"):
            raise invalid("the config is missing")
        async with self.committing:
            pipeline = await asyncio.to_thread(self.device.verify, request.config, self._clock())
            self.check_primary(request)
            self._adopt(request.action, pipeline)

    def _adopt(
        self, action: p4r.SetForwardingPipelineConfigRequest.Action.ValueType, pipeline: Pipeline
    ) -> None:
        if action == p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_SAVE:
            self.device.save(pipeline)
        elif action == p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT:
            self.device.commit(pipeline)
            _log.info("pipeline set by a controller", program=pipeline.program.name, state="new")
        elif action == p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT:
            self.device.reconcile(pipeline, self._clock())
            _log.info("pipeline set by a controller", program=pipeline.program.name, state="kept")

    def get_pipeline(
        self, request: p4r.GetForwardingPipelineConfigRequest
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Returns the config as it was set, or the parts of it that are asked for."""
        self.check_device(request.device_id)
        response = p4r.GetForwardingPipelineConfigResponse()
        pipeline = self.device.saved or self.device.active
        if pipeline is None:
            return response
        config, kinds = pipeline.config, p4r.GetForwardingPipelineConfigRequest
        response.config.SetInParent()
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        if request.response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(config.p4info)
        if request.response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = config.p4_device_config
        return response


class _Service(p4r_grpc.P4RuntimeServicer):
    """The service's methods: refusals become statuses, streams become clients."""

    def __init__(self, server: P4RuntimeServer) -> None:
        self._server = server

    async def Write(self, request: p4r.WriteRequest, context: _Context) -> p4r.WriteResponse:
        try:
            outcomes = self._server.write(request)
        except P4RuntimeError as error:
            await _abort(context, error)
        if any(outcome is not DONE for outcome in outcomes):
            await _abort_batch(context, outcomes)
        return p4r.WriteResponse()

    async def Read(self, request: p4r.ReadRequest, context: _Context) -> AsyncIterator[p4r.ReadResponse]:
        async with self._server.reading:
            try:
                entities = self._server.read(request)
            except P4RuntimeError as error:
                await _abort(context, error)
            for at in range(0, len(entities), ENTITIES_A_MESSAGE):
                yield p4r.ReadResponse(entities=entities[at : at + ENTITIES_A_MESSAGE])

    async def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        try:
            await self._server.set_pipeline(request)
        except P4RuntimeError as error:
            await _abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        try:
            return self._server.get_pipeline(request)
        except P4RuntimeError as error:
            await _abort(context, error)
            raise

    async def Capabilities(
        self, request: p4r.CapabilitiesRequest, context: _Context
    ) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def StreamChannel(
        self, request_iterator: AsyncIterator[p4r.StreamMessageRequest], context: _Context
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        client = Client(context.peer(), self._server.counters)
        listening = asyncio.create_task(self._listen(client, request_iterator))
        try:
            while (message := await client.next()) is not None:
                yield message
            if client.failure is not None:
                await _abort(context, client.failure)
        finally:
            listening.cancel()
            self._server.left(client)

    async def _listen(self, client: Client, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        try:
            async for request in requests:
                self._server.heard(client, request)
                await client.room()
            client.end()
        except P4RuntimeError as error:
            client.end(error)
        except Exception:
            _log.exception("stream of a controller failed", peer=client.peer)
            client.end(P4RuntimeError(Code.INTERNAL, "an error of the switch's own; its log has the trace"))


def _role_of(request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> str:
    return request.role or (str(request.role_id) if request.role_id else "")


def role_name(role: p4r.Role) -> str:
    """Returns the role's name; the numbers of old clients are names too."""
    return role.name or (str(role.id) if role.id else "")


def _uint128(message: p4r.Uint128) -> int:
    return message.high << 64 | message.low


def _stream_error(request: p4r.StreamMessageRequest, error: P4RuntimeError) -> p4r.StreamMessageResponse:
    message = p4r.StreamError(canonical_code=error.code, message=str(error), space="treecast")
    if request.HasField("packet"):
        message.packet_out.packet_out.CopyFrom(request.packet)
    elif request.HasField("digest_ack"):
        message.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        message.other.SetInParent()
    return p4r.StreamMessageResponse(error=message)


async def _abort(context: _Context, error: P4RuntimeError) -> None:
    await context.abort(_STATUS[error.code], str(error))


async def _abort_batch(context: _Context, outcomes: Sequence[Outcome]) -> None:
    """Ends the call with UNKNOWN, and one p4.v1.Error for each update in the status' details."""
    refused = [outcome for outcome in outcomes if outcome is not DONE]
    text = f"{len(refused)} of {len(outcomes)} updates were refused, the first: {refused[0].message}"
    status = rpc_status.Status(code=Code.UNKNOWN, message=text)
    for outcome in outcomes:
        detail = p4r.Error(canonical_code=outcome.code, message=outcome.message)
        if outcome is not DONE:
            detail.space = "treecast"
        status.details.add().Pack(detail)
    metadata = [("grpc-status-details-bin", status.SerializeToString())]
    if status.ByteSize() > MOST_DETAILS:
        metadata, text = [], f"{text} (too many updates for details of each)"
    await context.abort(grpc.StatusCode.UNKNOWN, text, tuple(metadata))
