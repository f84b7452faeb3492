"""A coordinator's server on loopback, and clients of it."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.postgresql import PostgresServer, programs

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.server import CoordinatorServer, ServerSettings
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import StateSettings
from treecast.middleware.storage.settings import FsyncPolicy

CLUSTER = "c" * 22
TOKEN = JoinToken(CLUSTER, 1, bytes(range(32)))


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    path = tmp_path / "coordinator.sqlite"
    quick = CoordinatorSettings(StateSettings(hearing=0.05))  # most tests restart it without their hosts
    return ServerSettings(Address("127.0.0.1", 0), path, TOKEN, coordinator=quick, fsync=FsyncPolicy.NEVER)


@pytest.fixture
async def server(settings: ServerSettings) -> AsyncIterator[CoordinatorServer]:
    made = CoordinatorServer(settings)
    await made.start()
    yield made
    await made.close(0)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., CoordinatorClient]]:
    """Makes clients of a server and closes them afterwards."""
    made: list[CoordinatorClient] = []

    def make(server: CoordinatorServer, token: JoinToken | None = TOKEN, **kw: Any) -> CoordinatorClient:
        made.append(CoordinatorClient(str(server.address), token, rng=random.Random(1), **kw))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
def client(server: CoordinatorServer, connect: Callable[..., CoordinatorClient]) -> CoordinatorClient:
    return connect(server)


@pytest.fixture
def hello() -> Callable[..., pb.AttachRequest]:
    """Returns a function that makes a named host's AttachRequest."""

    def make(name: str = "h1", **fields: str) -> pb.AttachRequest:
        whole = {"instance": f"data of {name}", "address": "10.0.0.1:7672", "version": "0.1", **fields}
        return pb.AttachRequest(name=name, **whole)

    return make


@pytest.fixture
def restart(settings: ServerSettings) -> Callable[[CoordinatorServer], Any]:
    """Closes a server, and starts another one at the same address on the same store."""

    async def again(server: CoordinatorServer) -> CoordinatorServer:
        await server.close(0)
        made = CoordinatorServer(replace(settings, address=server.address))
        await made.start()
        return made

    return again


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of the process; a skip without one, a failure where TREECAST_CI=1."""
    if programs() is None:
        assert not os.environ.get("TREECAST_CI"), "PostgreSQL is not installed"
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of a new, empty database."""
    return postgres.make_database(uuid.uuid4().hex)
