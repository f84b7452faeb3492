"""The client by itself: its pauses, and its handling of nonsense from a coordinator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import pytest

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_client import SERVICE, CoordinatorClient
from treecast.middleware.api.entries import Position
from treecast.middleware.api.lasting import BackOff
from treecast.middleware.api.rpc import OPTIONS
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError

Hello = Callable[..., pb.AttachRequest]
SESSION = pb.HostSession(host_id=1, incarnation=1)


class Nonsense:
    """A coordinator with replies set by the test: bytes by call, and a list of streams for Watch."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.streams: list[list[bytes]] = []
        self.watched: list[pb.WatchRequest] = []

    async def start(self) -> str:
        self._server = grpc.aio.server(options=OPTIONS)
        handlers = {
            method.name: grpc.unary_stream_rpc_method_handler(self._watch)
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler(self._answer(method.name))
            for method in SERVICE.methods
        }
        handler = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)
        self._server.add_generic_rpc_handlers((handler,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def close(self) -> None:
        await self._server.stop(0)

    def _answer(self, name: str) -> Callable[[bytes, Any], Any]:
        async def answer(body: bytes, context: Any) -> bytes:
            return self.answers[name]

        return answer

    async def _watch(self, body: bytes, context: Any) -> None:
        self.watched.append(pb.WatchRequest.FromString(body))
        for message in self.streams.pop(0):
            await context.write(message)


@pytest.fixture
async def nonsense() -> AsyncIterator[Nonsense]:
    made = Nonsense()
    yield made
    await made.close()


@pytest.fixture
async def client(nonsense: Nonsense) -> AsyncIterator[CoordinatorClient]:
    made = CoordinatorClient(await nonsense.start(), None, cluster_id="mine", rng=random.Random(3))
    yield made
    await made.close()


async def fault(call: Any) -> Fault:
    with pytest.raises(TreecastError) as refused:
        await call
    return refused.value.fault


def test_pauses_double_are_spread_and_end() -> None:
    pauses = BackOff(random.Random(1), 0.1, 1.0)
    found = [pauses.pause() for _ in range(8)]
    for pause, whole in zip(found, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0), strict=True):
        assert whole / 2 <= pause <= whole
    assert len(set(found)) == 8
    again = BackOff(random.Random(1), 0.1, 1.0)
    assert [again.pause() for _ in range(8)] == found
    pauses.reset()
    assert pauses.pause() <= 0.1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\xff\xff", Fault.INTERNAL),
        (b"", Fault.POLICY_VIOLATION),
        (pb.AttachResponse(cluster_id="other", lease_seconds=1).SerializeToString(), Fault.POLICY_VIOLATION),
        *(
            (pb.AttachResponse(cluster_id="mine", lease_seconds=lease).SerializeToString(), Fault.INTERNAL)
            for lease in (0.0, -1.0, float("nan"), float("inf"), 1e9)
        ),
    ],
)
async def test_attach_answers_that_make_no_sense(
    nonsense: Nonsense, client: CoordinatorClient, hello: Hello, answer: bytes, expected: Fault
) -> None:
    nonsense.answers["Attach"] = answer
    attachment = Attachment(client, hello())
    assert await fault(attachment.attach()) is expected
    with pytest.raises(TreecastError, match="not attached"):
        _ = attachment.session


async def test_other_answers_that_make_no_sense(nonsense: Nonsense, client: CoordinatorClient) -> None:
    for block in (pb.ProducerIdsResponse(), pb.ProducerIdsResponse(first=2**63, count=1)):
        nonsense.answers["ProducerIds"] = block.SerializeToString()
        assert await fault(client.producer_ids(SESSION)) is Fault.INTERNAL
    item = pb.HomeItem(key=b"k", value=b"v")
    for page in (pb.GetHomeStateResponse(more=True), pb.GetHomeStateResponse(more=True, items=[item])):
        nonsense.answers["GetHomeState"] = page.SerializeToString()
        assert await fault(client.get_home_state(SESSION, pb.HomeEntry(id="g"))) is Fault.INTERNAL
    unknown = pb.PutHomeStateResponse(refused=[pb.HomeRefusal(index=3, fault="NO_SUCH_FAULT", detail="x")])
    nonsense.answers["PutHomeState"] = unknown.SerializeToString()
    assert (await client.put_home_state(SESSION, []))[3].fault is Fault.INTERNAL
    # a call without a set reply fails with an internal error
    assert await fault(client.renew(SESSION)) is Fault.INTERNAL


def message(revision: int, history: str = "h", **fields: Any) -> bytes:
    return pb.WatchResponse(history=history, revision=revision, **fields).SerializeToString()


@pytest.mark.parametrize(
    "wrong",
    [
        [b"\xff\xff"],
        [message(6)],  # the same revision twice
        [message(3)],
        [message(9, "other")],
        [message(9, snapshot=True, more=True), message(10)],  # an incomplete snapshot
    ],
)
async def test_a_watcher_that_is_told_nonsense_begins_anew(
    nonsense: Nonsense, client: CoordinatorClient, wrong: list[bytes]
) -> None:
    change = pb.EntryChange(kind=pb.ENTRY_KIND_HOST, key="x")
    nonsense.streams = [
        [message(5, snapshot=True, more=True, changes=[change]), message(5, snapshot=True, changes=[change])],
        [message(6, changes=[change]), *wrong],
        [message(20, "new", snapshot=True)],
    ]
    async with aclosing(client.watch()) as updates:
        found = [await asyncio.wait_for(anext(updates), 20) for _ in range(3)]
    assert [(u.snapshot, u.position, len(u.changes)) for u in found] == [
        (True, Position("h", 5), 2),
        (False, Position("h", 6), 1),
        (True, Position("new", 20), 0),
    ]
    assert [(w.history, w.revision) for w in nonsense.watched] == [("", 0), ("h", 5), ("", 0)]
