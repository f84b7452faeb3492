"""Streams by content: a topic's messages go to some hosts of one stream, and others are told."""

from __future__ import annotations

from tests.unit.events.test_narrowing import numbers, publish, subscribe
from tests.unit.events.world import TestHost, World, until

from treecast.middleware.fabric.carriers.content import Content
from treecast.middleware.relay.events.ports import OPEN
from treecast.middleware.wire.content import Layout


def by_content(host: TestHost) -> None:
    """Makes the host send by content, and by unicast as no switch is there."""
    carrier = Content(Layout("n:u32"))
    carrier.refusal = ""
    host.fabric.carriers._content = carrier


async def test_members_of_a_stream_by_content_get_what_passes_and_settle_the_rest(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    by_content(a)
    some, other = b.client(), c.client()
    await subscribe(some, "t", "n > 7")
    await subscribe(other, "t", "n == 1")
    publish(a, numbers(0, 10))  # nobody has answered yet
    await until(lambda: (some.payloads, other.payloads) == (numbers(8, 10), numbers(1, 2)))
    received = b.counters.messages_received
    publish(a, numbers(0, 10))
    await until(lambda: (some.payloads, other.payloads) == (numbers(8, 10) * 2, numbers(1, 2) * 2))
    assert [stream.topic for stream in a.streams] == [b"t"]
    await until(lambda: not a.streams[0].promises)
    rows = [a.streams[0].origin.sender.row(host) for host in (2, 3)]
    assert all(row.closed and not row.expired for row in rows)
    assert b.counters.messages_received - received == 2


async def test_a_host_of_an_earlier_version_gets_all_messages_of_the_topic(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    by_content(a)
    assert c.events is not None
    answers = c.events.receiving._open

    def of_earlier_version(host: int, request, body):  # type: ignore[no-untyped-def]
        answer, rest = answers(host, request, body)
        return type(answer)(answer.kept, answer.next, answer.ended), rest

    del c.methods._entries[OPEN.number]
    c.methods.register(OPEN, of_earlier_version)
    some, other = b.client(), c.client()
    await subscribe(some, "t", "n > 7")
    await subscribe(other, "t", "n == 1")
    for times in range(1, 4):
        publish(a, numbers(0, 10))
        await until(lambda: other.payloads == numbers(1, 2) * times)  # noqa: B023
    await until(lambda: not a.streams[0].promises)
    row = a.streams[0].origin.sender.row(3)
    assert (row.filtered, c.counters.messages_received) == (0, 9)  # what is for somebody, three times


async def test_a_host_that_takes_no_event_streams_is_no_member(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    by_content(a)
    await subscribe(b.client(), "t", "n > 7")
    await subscribe(c.client(), "t", "n == 1")
    assert a.events is not None
    contents = a.events.sending._contents
    assert contents.members(b"t") == {2, 3}
    a.events.sending._leave_out(3)
    assert contents.members(b"t") == {2}
    a.events.sending.host_up(3)
    assert contents.members(b"t") == {2, 3}
