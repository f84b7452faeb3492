"""Frames that cost more to serve than to send are served in several passes of the loop, in order."""

from __future__ import annotations

import pytest
from pamqp import frame
from tests.unit.amqp.face import Basic, Channel, Client, MemoryHost, Queue, publish
from tests.unit.moving_loop import Loop

from treecast.middleware.model.budget import WorkBudget


@pytest.fixture
def host() -> MemoryHost:
    return MemoryHost()


def begin(host: MemoryHost) -> Loop:
    """From now on the work budget of the host counts."""
    loop = Loop()
    host.amqp.work = WorkBudget(loop.time, loop.call_soon, 0.5, 0.5)
    return loop


def declared(client: Client, count: int) -> bytes:
    return b"".join(
        frame.marshal(Queue.Declare(queue=f"q{number}", durable=True), 1) for number in range(count)
    )


def test_many_methods_take_several_passes_in_order(host: MemoryHost) -> None:
    client, other = host.client(), host.client()
    loop = begin(host)
    client.send_bytes(declared(client, 30) + publish("q29", b"x"))
    client.send_bytes(frame.marshal(Basic.Get(queue="q29"), 1))
    assert len(client.got()) < 30
    other.send(Channel.Flow(active=True))
    assert isinstance(other.got()[0], Channel.FlowOk)
    assert loop.finish() > 5
    found = client.got()
    assert isinstance(found[-2], Queue.DeclareOk)
    assert found[-1].body == b"x"  # type: ignore[attr-defined]


def test_publishes_with_large_tables_take_several_passes(host: MemoryHost) -> None:
    client = host.client()
    client.declare("q")
    loop = begin(host)
    headers = {f"h{number}": "x" * 20 for number in range(300)}
    one = b"".join(publish("q", str(number).encode(), "", headers=headers) for number in range(9))
    client.send_bytes(one + b"".join(frame.marshal(Basic.Get(queue="q"), 1) for _ in range(9)))
    loop.finish()
    assert [message.body for message in client.messages()] == [str(number).encode() for number in range(9)]


def test_a_client_that_leaves_in_between_is_not_served_on(host: MemoryHost) -> None:
    client = host.client()
    loop = begin(host)
    client.send_bytes(declared(client, 30))
    client.session.lost(host.now)
    loop.finish()
    assert len(host.amqp.vhosts["/"].queues) < 30
