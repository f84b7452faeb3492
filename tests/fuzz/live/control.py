"""Calls of the daemon's and the coordinator's services with random messages, whole and changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from treecast.middleware.api.call_auth import PROTOCOL, PROTOCOL_KEY
from treecast.middleware.api.coordinator_client import SERVICE as COORDINATOR
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.daemon_client import SERVICE as DAEMON
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import Method, methods
from treecast.middleware.daemon.tokens import given_token
from treecast.middleware.model.errors import TreecastError

from .changes import blob, name, number, sometimes_changed

_OWN = list(methods(DAEMON))
_CLUSTER = [method for method in methods(COORDINATOR) if method.name != "Watch"]
_SECONDS = 2.0  # of a call: a home that is away is waited for


class Caller:
    """A process of the daemon's user, which may change things, and a host with the cluster's token."""

    def __init__(self, target: str, data: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._channel = grpc.insecure_channel(target)
        self._host = self._loop.run_until_complete(
            self._client(target, given_token(f"@{data / 'join-token'}"))
        )

    def close(self) -> None:
        self._channel.close()
        self._loop.run_until_complete(self._host.close())
        self._loop.close()

    async def _client(self, target: str, token: JoinToken) -> CoordinatorClient:
        return CoordinatorClient(target, token, timeout=_SECONDS)

    def calls(self, rng: random.Random) -> Iterator[str]:
        """Makes some calls. Yields the outcome of each."""
        for _ in range(rng.randrange(1, 12)):
            method = rng.choice(rng.choice((_OWN, _CLUSTER)))
            message = method.request()
            _fill(message, rng)
            data = sometimes_changed(message.SerializeToString(), rng, 0.3)
            if method in _OWN or rng.random() < 0.2:
                yield self._unsigned(method, data)
            else:
                yield self._loop.run_until_complete(self._signed(method, data))

    def _unsigned(self, method: Method, data: bytes) -> str:
        try:
            self._channel.unary_unary(method.path)(
                data, timeout=_SECONDS, metadata=((PROTOCOL_KEY, PROTOCOL),)
            )
        except grpc.RpcError as error:
            return error.code().name  # type: ignore[attr-defined, no-any-return]
        return "OK"

    async def _signed(self, method: Method, data: bytes) -> str:
        try:
            await self._host._ask(self._host._place, method.name, data)
        except TreecastError as error:
            return f"signed {error.fault.name}"
        return "signed OK"


def _fill(message: Message, rng: random.Random, depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.3 or depth > 3:
            continue
        if field.is_repeated:
            _fill_repeated(message, field, rng, depth)
        elif field.type == Field.TYPE_MESSAGE:
            _fill(getattr(message, field.name), rng, depth + 1)
        else:
            setattr(message, field.name, _value(field, rng))


def _fill_repeated(message: Message, field: Field, rng: random.Random, depth: int) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        for _ in range(rng.randrange(3)):
            if value.type != Field.TYPE_MESSAGE:
                held[_value(field.message_type.fields_by_name["key"], rng)] = _value(value, rng)
        return
    for _ in range(rng.randrange(4)):
        if field.type == Field.TYPE_MESSAGE:
            _fill(held.add(), rng, depth + 1)
        else:
            held.append(_value(field, rng))


def _value(field: Field, rng: random.Random) -> Any:
    match field.cpp_type:
        case Field.CPPTYPE_STRING:
            return blob(rng) if field.type == Field.TYPE_BYTES else name(rng)
        case Field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case Field.CPPTYPE_ENUM:
            return rng.choice([one.number for one in field.enum_type.values])
        case Field.CPPTYPE_DOUBLE | Field.CPPTYPE_FLOAT:
            return rng.choice((0.0, -1.0, 1e300, float("nan")))
        case Field.CPPTYPE_INT32:
            return number(rng, 32)
        case Field.CPPTYPE_INT64:
            return number(rng, 64)
        case Field.CPPTYPE_UINT32:
            return number(rng, 32, signed=False)
        case _:
            return number(rng, 64, signed=False)
