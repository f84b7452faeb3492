"""A session with one switch over P4Runtime, as its primary controller.

finsy provides the client and the messages. Writes are a difference of states, in stages, and are read back: a
switch that acknowledges a write and holds something else is detected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from finsy import P4Client, P4ClientError
from finsy.proto import U128, p4i, p4r
from msgspec import Struct

from treecast.middleware.dataplane.p4 import P4RuntimeError, Schema
from treecast.middleware.model.logs import Log

from .difference import Change, SwitchDiffers, SwitchRefused, diff
from .messages import counted, counter_filters, filters_for, state_of, update_of
from .state import SwitchState

# in one Write: the status with a detail for each fits into the metadata that finsy accepts
MOST_UPDATES = 500
CONNECT_SECONDS = 30.0
_log = Log(__name__)


class Program(Struct, frozen=True):
    """A program for a switch: its P4Info, and the device config in the switch's own form."""

    info: p4i.P4Info
    config: bytes
    cookie: int = 0


class SwitchSession:
    """An open session; use it in `async with`. Raises SwitchRefused if it cannot become primary."""

    def __init__(
        self,
        address: str,
        *,
        device_id: int = 1,
        election_id: int = 1,
        name: str = "",
        heard: Callable[[p4r.StreamMessageResponse], None] | None = None,
    ) -> None:
        self.name = name or address
        self._device_id, self._election_id = device_id, election_id
        self._client = P4Client(address, wait_for_ready=True)
        self._heard = heard
        self._listening: asyncio.Task[None] | None = None
        self._primary = asyncio.Event()
        self._schema: Schema | None = None
        self.lost = asyncio.Event()

    async def __aenter__(self) -> SwitchSession:
        await self._client.open(complete_request=self._complete)
        try:
            await asyncio.wait_for(self._become_primary(), CONNECT_SECONDS)
        except BaseException:
            await self._client.close()
            raise
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._client.close()

    @property
    def schema(self) -> Schema:
        """The entities of the switch's program. Raises SwitchRefused before the program is known."""
        if self._schema is None:
            raise SwitchRefused(f"{self.name} runs no program that is known")
        return self._schema

    # --- arbitration

    def _complete(self, request: Any) -> None:
        """Adds the election id to calls that change something. finsy calls it before each call."""
        if isinstance(request, p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest):
            request.election_id.CopyFrom(U128.encode(self._election_id))

    async def _become_primary(self) -> None:
        update = p4r.MasterArbitrationUpdate(
            device_id=self._device_id, election_id=U128.encode(self._election_id)
        )
        with _refusals(self.name):
            await self._client.send(p4r.StreamMessageRequest(arbitration=update))
            while not self._primary.is_set():
                message = await self._client.receive()
                self._arbitrated(message)

    def _arbitrated(self, message: p4r.StreamMessageResponse) -> None:
        if message.WhichOneof("update") != "arbitration":
            return
        if message.arbitration.status.code == 0:
            self._primary.set()
            return
        highest = U128.decode(message.arbitration.election_id)
        if not self._primary.is_set():
            raise SwitchRefused(
                f"{self.name} has a primary with election id {highest}, ours is {self._election_id}"
            )
        self._primary.clear()
        self.lost.set()
        _log.warning("another controller has become primary", switch=self.name)

    async def _listen(self) -> None:
        """Reads the stream as long as it lasts; passes everything but arbitration to `heard`."""
        try:
            while True:
                message = await self._client.receive()
                self._arbitrated(message)
                if self._heard is not None and message.WhichOneof("update") != "arbitration":
                    self._heard(message)
        except (P4ClientError, RuntimeError) as error:
            _log.warning("switch ended the stream", switch=self.name, error=error)
        finally:
            self._primary.clear()
            self.lost.set()

    # --- pipelines

    async def set_program(self, program: Program, *, always: bool = False) -> bool:
        """Makes the switch run the program; returns whether it had to be set. Without `always`, an equal
        cookie means the same program.
        """
        known = await self._config(p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE)
        same = program.cookie and known.HasField("cookie") and known.cookie.cookie == program.cookie
        if not always and same:
            self._schema = Schema(known.p4info)
            return False
        config = p4r.ForwardingPipelineConfig(p4info=program.info, p4_device_config=program.config)
        config.cookie.cookie = program.cookie
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=config,
        )
        with _refusals(self.name):
            await self._client.request(request)
        self._schema = Schema(program.info)
        return True

    async def learn_program(self) -> Schema:
        """Returns the schema of the program that the switch runs."""
        known = await self._config(p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE)
        if not known.HasField("p4info"):
            raise SwitchRefused(f"{self.name} runs no program")
        self._schema = Schema(known.p4info)
        return self._schema

    async def _config(
        self, kind: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.ForwardingPipelineConfig:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self._device_id, response_type=kind)
        try:
            return (await self._client.request(request)).config
        except P4ClientError as error:
            if error.is_pipeline_missing:
                return p4r.ForwardingPipelineConfig()
            raise SwitchRefused(f"{self.name}: {error}") from error

    # --- state

    async def read(self, wanted: SwitchState | None = None) -> SwitchState:
        """Returns the switch's state; of registers and meters only the cells in `wanted`."""
        schema = self.schema
        filters = filters_for(schema, wanted or SwitchState())
        request = p4r.ReadRequest(device_id=self._device_id, entities=filters)
        with _refusals(self.name):
            return state_of(schema, [entity async for entity in self._entities(request)])

    async def _entities(self, request: p4r.ReadRequest) -> AsyncIterator[p4r.Entity]:
        async for response in self._client.request_iter(request):
            for entity in response.entities:
                yield entity

    async def write(self, changes: Iterable[Change]) -> int:
        """Writes changes stage by stage and returns their number. Raises SwitchRefused at the first batch
        with a refusal; later stages are then not started.
        """
        count = 0
        schema = self.schema
        for _, stage in groupby(changes, key=lambda change: change.stage):
            updates = [update_of(schema, change) for change in stage]
            for at in range(0, len(updates), MOST_UPDATES):
                request = p4r.WriteRequest(device_id=self._device_id, updates=updates[at : at + MOST_UPDATES])
                with _refusals(self.name):
                    await self._client.request(request)
            count += len(updates)
        return count

    async def bring_to(self, desired: SwitchState) -> int:
        """Brings the switch to `desired` and reads it back. Returns the number of writes.

        Raises SwitchDiffers if the switch holds something else afterwards.
        """
        count = await self.write(diff(await self.read(desired), desired))
        left = diff(await self.read(desired), desired)
        if left:
            raise SwitchDiffers(self.name, left)
        return count

    async def counter(self, name: str, cells: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Returns packets and bytes in cells of a counter."""
        filters = counter_filters(self.schema, name, cells)
        request = p4r.ReadRequest(device_id=self._device_id, entities=filters)
        with _refusals(self.name):
            return counted([entity async for entity in self._entities(request)])

    async def send_packet(self, payload: bytes, metadata: Iterable[p4r.PacketMetadata] = ()) -> None:
        """Sends a packet-out."""
        message = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=metadata))
        with _refusals(self.name):
            await self._client.send(message)

    async def acknowledge(self, digests: p4r.DigestList) -> None:
        """Acknowledges a digest list."""
        ack = p4r.DigestListAck(digest_id=digests.digest_id, list_id=digests.list_id)
        with _refusals(self.name):
            await self._client.send(p4r.StreamMessageRequest(digest_ack=ack))


@contextlib.contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Translates finsy's errors, with the switch's message for each update."""
    try:
        yield
    except P4RuntimeError as error:
        raise SwitchRefused(f"{name} answered with what its program has not: {error}") from error
    except P4ClientError as error:
        details = "; ".join(f"update {at}: {one.message}" for at, one in list(error.details.items())[:5])
        raise SwitchRefused(f"{name}: {error.message}{f' ({details})' if details else ''}") from error
