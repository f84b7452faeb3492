"""Events: what the coordinator records of its own decisions and of what hosts tell it, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control import events
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import (
    Attach,
    DefinitionWrite,
    PutDefinitions,
    PutEvents,
    PutInterest,
    Session,
    ToldEvent,
)
from treecast.middleware.control.server import CoordinatorServer
from treecast.middleware.control.state import step
from treecast.middleware.control.values import EVENTS, Event, Limits, StateSettings, event_key, event_number
from treecast.middleware.model.errors import Fault, TreecastError

Hello = Callable[..., pb.AttachRequest]
Shown = tuple[str, str, str, str]
MISSED = events.MISSED


def shown(found: list[pb.ClusterEvent] | Any) -> list[Shown]:
    return [(one.kind, one.host, one.who, one.what) for one in found]


def told(kind: str, who: str) -> pb.ClusterEvent:
    return pb.ClusterEvent(kind=kind, face="amqp", who=who, what="127.0.0.1")


@pytest.fixture
def cluster() -> ClusterState:
    """A cluster with one host, `h`, whose session is Session(1, 1)."""
    state = ClusterState(StateSettings(limits=Limits(events=3)))
    state.pass_time(0.0)
    step(state, Attach("h", "data", "10.0.0.1:1", "0.1"))
    return state


H = Session(1, 1)


async def test_events_of_the_papers_steps_are_recorded_in_order(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello, restart: Any
) -> None:
    """Joined, created, bound, left; also over a restart of the coordinator, and with numbers without gaps."""
    session = (await client.attach(hello("b"))).session
    await client.put_events(session, [told("joined", "publisher")])
    exchange = pb.DefinitionWrite(key="3:%2F/E", value=b"an exchange")
    binding = pb.DefinitionWrite(key="5:%2F/amq.topic/exchange/amq.fanout/t/0", value=b"a binding")
    await client.put_definitions(session, [exchange])
    await client.put_definitions(session, [exchange, binding])  # the exchange is known: no event
    await client.put_interest(session, 1, ["a/b"])
    server = await restart(server)
    again = (await client.attach(hello("b"))).session
    await client.put_definitions(again, [pb.DefinitionWrite(key="5:%2F/amq.topic/exchange/amq.fanout/t/0")])
    await client.put_interest(again, 1, ["a/#"])
    await client.put_events(again, [told("left", "publisher")], missed=7)
    await client.detach(again)
    found = (await client.get_events()).events
    assert shown(found) == [
        ("host joined", "b", "", "10.0.0.1:7672"),
        ("joined", "b", "publisher", "127.0.0.1"),
        ("created", "b", "", "%2F/E"),
        ("bound", "b", "", "%2F/amq.topic/exchange/amq.fanout/t/0"),
        ("subscribed", "b", "", "a/b"),
        ("host joined", "b", "", "10.0.0.1:7672"),
        ("unbound", "b", "", "%2F/amq.topic/exchange/amq.fanout/t/0"),
        ("unsubscribed", "b", "", "a/b"),
        ("subscribed", "b", "", "a/#"),
        ("left", "b", "publisher", "127.0.0.1"),
        (MISSED, "b", "", "7"),
        ("host left", "b", "", "10.0.0.1:7672"),
        ("unsubscribed", "b", "", "a/#"),
    ]
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert shown((await client.get_events(last=2)).events) == shown(found[-2:])
    assert shown((await client.get_events(after=10)).events) == shown(found[10:])
    await server.close(0)


async def test_a_topic_has_events(client: CoordinatorClient, hello: Hello) -> None:
    await client.attach(hello("h"))
    await client.create_topic(pb.CreateTopicEntryRequest(name="orders", partitions=1))
    await client.delete_topic("orders")
    found = shown((await client.get_events()).events)
    assert [(kind, what) for kind, _, _, what in found[1:]] == [
        ("created", "topic orders"),
        ("deleted", "topic orders"),
    ]


def test_what_a_host_may_tell(cluster: ClusterState) -> None:
    ok = ToldEvent("joined", "mqtt", "a\x1b[31mname", "")
    (event,) = step(cluster, PutEvents(H, (ok,))).events
    assert event == Event("joined", "h", "mqtt", "a?[31mname")
    for bad in ((ok,) * 4, (ToldEvent("created", "mqtt", "", ""),), (ToldEvent("left", "", "x", ""),)):
        with pytest.raises(TreecastError) as info:
            step(cluster, PutEvents(H, bad))
        assert info.value.fault is Fault.INVALID_REQUEST
    with pytest.raises(TreecastError) as info:
        step(cluster, PutEvents(Session(1, 9), (ok,)))
    assert info.value.fault is Fault.UNKNOWN_MEMBER


def test_a_definition_that_changes_nothing_has_no_event(cluster: ClusterState) -> None:
    first = PutDefinitions(H, (DefinitionWrite("2:%2F/policy/p", b"1"),))
    assert [event.kind for event in step(cluster, first).events] == ["created"]
    assert step(cluster, first).events == ()
    second = PutDefinitions(H, (DefinitionWrite("2:%2F/policy/p", b"2", replace=True),))
    assert [event.kind for event in step(cluster, second).events] == ["changed"]
    gone = PutDefinitions(H, (DefinitionWrite("2:%2F/policy/p", None),))
    assert [event.kind for event in step(cluster, gone).events] == ["deleted"]


def test_many_changes_of_one_command_are_counted(cluster: ClusterState) -> None:
    patterns = tuple(str(number) for number in range(1500))
    found = step(cluster, PutInterest(H, 1, patterns)).events
    assert len(found) == 1001
    assert found[-1] == Event(MISSED, "h", what="500")


def test_only_the_last_events_are_kept() -> None:
    event = Event("joined", "h", "mqtt", "c", "x")
    writes = events.stored([event, event], events.KEPT - 1, 5)
    assert [(write.home, write.value is None, event_number(write.key or b"")) for write in writes] == [
        (EVENTS, False, events.KEPT),
        (EVENTS, False, events.KEPT + 1),
        (EVENTS, True, 1),
    ]
    message = pb.ClusterEvent.FromString(writes[0].value or b"")
    assert events.EVENT.read(message) == Event("joined", "h", "mqtt", "c", "x", events.KEPT, 5)
    assert event_number(event_key(2**40)) == 2**40
