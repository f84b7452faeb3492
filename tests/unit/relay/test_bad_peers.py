"""Other hosts send invalid requests: each is refused with a fault, and does no harm."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace
from tests.unit.relay.world import World, batch, content, until

from treecast.middleware.broker.values import Isolation
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.relay.carrier_choice import (
    GROUP_JOIN,
    GROUP_LEAVE,
    PROBE_SEEN,
    GroupRequest,
    ProbeSeen,
)
from treecast.middleware.relay.interest import INTEREST, InterestRequest
from treecast.middleware.relay.partitions import calls
from treecast.middleware.wire.segment import Message

NUMBERS = (0, 1, -1, 5, 2**31 - 1, -(2**31))
LARGE = (*NUMBERS, 2**63 - 1, -(2**63), 2**40)


def ref(rng: random.Random, topic_id: bytes) -> calls.PartitionRef:
    return calls.PartitionRef(
        topic_id=rng.choice([topic_id, topic_id, topic_id, b"", b"x" * 16, b"y" * 99]),  # type: ignore[arg-type]
        partition=rng.choice([0, 0, 0, 1, 7, -1, 2**32 - 1]),
    )


def request(rng: random.Random, topic_id: bytes) -> tuple[int, bytes, bytes]:
    """Draws (method, head, body)."""
    which = ref(rng, topic_id)
    large = lambda: rng.choice(LARGE)  # noqa: E731
    number = lambda: rng.choice(NUMBERS)  # noqa: E731
    epochs = [calls.EpochStart(number(), large()) for _ in range(rng.randint(0, 3))]
    receiving = calls.ReceivingStream(rng.randint(0, 3), rng.randint(0, 3))
    isolation = rng.choice(list(Isolation))
    heads = {
        calls.FOLLOW: calls.FollowRequest(which, large(), tuple(epochs), rng.random() < 0.5, receiving),
        calls.UNFOLLOW: which,
        calls.PRODUCE: calls.ProduceRequest(which, number(), rng.choice(["", "x", "y" * 70_000])),
        calls.FETCH: calls.FetchRequest(which, large(), rng.choice([0, 1, 2**32 - 1]), isolation, False),
        calls.OFFSET: calls.OffsetRequest(which, large(), isolation),
        calls.EPOCH_END: calls.EpochEndRequest(which, number()),
        calls.DELETE: calls.DeleteRequest(which, rng.choice([-7, 2**40, -(2**63)])),
        calls.MARKER: calls.MarkerRequest(which, ProducerIdentity(large(), number()), False, number()),
        calls.LOG_START: calls.LogStartNotice(which, large()),
        INTEREST: InterestRequest(rng.choice([0, 3]), rng.choice([-1, 0, 2**64 - 1]), [("", "#", "x")]),
        GROUP_JOIN: GroupRequest(rng.choice([0, 5, 2**22, 2**32 - 1]), rng.choice(["", "ip-multicast", "é"])),
        GROUP_LEAVE: GroupRequest(rng.choice([0, 5, -1, 2**32 - 1]), "ip-multicast"),
        PROBE_SEEN: ProbeSeen(1, rng.choice([0, 2**64 - 1])),
    }
    method = rng.choice(list(heads))
    head = method.head(heads[method])
    if rng.random() < 0.2:
        head = rng.randbytes(rng.randint(0, 60))
    body = rng.choice([b"", b"x", rng.randbytes(200), batch(b"v")[:-3]])
    return method.number, head, body


@pytest.mark.parametrize("seed", range(4))
async def test_nonsense_is_refused_and_harms_nothing(world: World, seed: int) -> None:
    rng = random.Random(seed)
    entry = await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for number in range(5):
        await a.produce(b"%d" % number)
    before = content(a.log())
    refused: list[Fault] = []
    for _ in range(400):
        method, head, body = request(rng, entry.topic_id.bytes)
        try:
            await b.channels.call(1, method, head, body, timeout=10)
        except TreecastError as error:
            refused.append(error.fault)
    assert len(refused) > 100
    assert not {Fault.INTERNAL, Fault.TIMED_OUT}.intersection(refused)
    assert content(a.log()) == before
    assert a.channels.is_up(2)
    await b.read(0)
    await until(b.copied())
    await a.produce(b"x")
    await until(b.copied())
    assert content(b.log()) == content(a.log())


async def test_a_leader_that_answers_nonsense_is_not_believed(world: World) -> None:
    """Its stream brings invalid batches, and its answers contradict themselves."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await a.produce(b"one")
    led = a.relay.leading
    follow = led.follow

    async def lies(host: int, request: calls.FollowRequest, body: memoryview) -> object:
        answer, nothing = await follow(host, request, body)  # type: ignore[misc]
        return replace(answer, begin=2**40), nothing

    a.channels.handler.__self__._entries[calls.FOLLOW.number].handler = lies  # type: ignore[attr-defined]
    await b.read(0)
    await until(lambda: b.partition().replica._task is not None)
    assert (await b.read(0)).size > 0  # read at the leader
    a.channels.handler.__self__._entries[calls.FOLLOW.number].handler = follow  # type: ignore[attr-defined]
    await until(b.copied())
    stream = led.of_topic("t")[0]
    tail = stream.log._tail
    a.fabric._working = True  # so that the append is sent at the end of this turn, not at once
    a.append(b"right")
    a.fabric._working = False
    stream.log._close()
    right = tail.messages[-1]
    payload = bytearray(right.payload)
    payload[-1] ^= 1
    tail.messages[-1] = Message(right.sequence, right.records, bytes(payload))
    await until(lambda: b.counters.failed_chunks > 0)
    assert b.log().end_offset == 1
    tail.messages[-1] = right
    await until(b.copied())
    assert content(b.log()) == content(a.log())
