"""Other hosts that ask for nonsense: refused, each time with a fault, and nothing is harmed."""

from __future__ import annotations

import random

import pytest
from tests.unit.relay.world import World, batch, content, until

from treecast.middleware.api.v1 import peer_partitions_pb2 as pp
from treecast.middleware.api.v1 import peer_streams_pb2 as ps
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.interest import StreamMethod
from treecast.middleware.relay.partitions.ports import PartitionMethod
from treecast.middleware.wire.segment_assembly import Message

NUMBERS = (0, 1, -1, 5, 2**31 - 1, -(2**31))
LARGE = (*NUMBERS, 2**63 - 1, -(2**63), 2**40)


def ref(rng: random.Random, topic_id: bytes) -> pp.PartitionRef:
    return pp.PartitionRef(
        topic_id=rng.choice([topic_id, topic_id, topic_id, b"", b"x" * 16, b"y" * 99]),
        partition=rng.choice([0, 0, 0, 1, 7, 2**32 - 1]),
    )


def request(rng: random.Random, topic_id: bytes) -> tuple[int, bytes, bytes]:
    """(method, head, body)."""
    which = ref(rng, topic_id)
    large = lambda: rng.choice(LARGE)  # noqa: E731
    number = lambda: rng.choice(NUMBERS)  # noqa: E731
    epochs = [pp.EpochStart(leader_epoch=number(), start=large()) for _ in range(rng.randint(0, 3))]
    receiving = pp.ReceivingStream(stream=rng.randint(0, 3), epoch=rng.randint(0, 3))
    heads = {
        PartitionMethod.FOLLOW: pp.FollowRequest(
            partition=which, end=large(), epochs=epochs, tail=rng.random() < 0.5, receiving=receiving
        ),
        PartitionMethod.UNFOLLOW: pp.UnfollowRequest(partition=which),
        PartitionMethod.PRODUCE: pp.PeerProduceRequest(
            partition=which, acks=number(), transactional_id=rng.choice(["", "x", "y" * 70_000])
        ),
        PartitionMethod.FETCH: pp.PeerFetchRequest(
            partition=which, offset=large(), max_bytes=rng.choice([0, 1, 2**32 - 1])
        ),
        PartitionMethod.OFFSET: pp.PeerOffsetRequest(partition=which, timestamp=large()),
        PartitionMethod.EPOCH_END: pp.PeerEpochEndRequest(partition=which, leader_epoch=number()),
        PartitionMethod.DELETE: pp.PeerDeleteRequest(
            partition=which, before=rng.choice([-7, 2**40, -(2**63)])
        ),
        PartitionMethod.MARKER: pp.PeerMarkerRequest(
            partition=which, producer_id=large(), producer_epoch=number(), coordinator_epoch=number()
        ),
        PartitionMethod.LOG_START: pp.LogStartNotice(partition=which, log_start=large()),
        StreamMethod.INTEREST: ps.InterestRequest(
            base=rng.choice([0, 3]),
            version=rng.choice([0, 2**64 - 1]),
            added=[ps.TopicPattern(levels=["", "#", "x"])],
        ),
        StreamMethod.GROUP_JOIN: ps.GroupJoinRequest(
            state_id=rng.choice([0, 5, 2**22, 2**32 - 1]), form=rng.choice(["", "ip-multicast", "é"])
        ),
        StreamMethod.GROUP_LEAVE: ps.GroupLeaveRequest(
            state_id=rng.choice([0, 5, 2**32 - 1]), form="ip-multicast"
        ),
        StreamMethod.PROBE_SEEN: ps.ProbeSeen(state_id=1, nonce=rng.choice([0, 2**64 - 1])),
    }
    method = rng.choice(list(heads))
    head = heads[method].SerializeToString()
    if rng.random() < 0.2:
        head = rng.randbytes(rng.randint(0, 60))
    body = rng.choice([b"", b"x", rng.randbytes(200), batch(b"v")[:-3]])
    return int(method), head, body


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
    """Its stream brings batches that are none, and its answers contradict themselves."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await a.produce(b"one")
    led = a.relay.leading
    follow = led.follow

    async def lies(host: int, request: pp.FollowRequest, body: memoryview) -> object:
        answer, nothing = await follow(host, request, body)  # type: ignore[misc]
        answer.begin = 2**40
        return answer, nothing

    a.channels.handler.__self__._entries[PartitionMethod.FOLLOW].handler = lies  # type: ignore[attr-defined]
    await b.read(0)
    await until(lambda: b.partition().replica._task is not None)
    assert (await b.read(0)).size > 0  # of the leader
    a.channels.handler.__self__._entries[PartitionMethod.FOLLOW].handler = follow  # type: ignore[attr-defined]
    await until(b.copied())
    stream = led.of_topic("t")[0]
    tail = stream.log._tail
    a.fabric._working = True  # so that what is appended now is sent at the end of this turn, not at once
    a.append(b"right")
    a.fabric._working = False
    right = tail.messages[-1]
    payload = bytearray(right.payload)
    payload[-1] ^= 1
    tail.messages[-1] = Message(right.sequence, right.records, bytes(payload))
    await until(lambda: b.counters.failed_chunks > 0)
    assert b.log().end_offset == 1
    tail.messages[-1] = right
    await until(b.copied())
    assert content(b.log()) == content(a.log())
