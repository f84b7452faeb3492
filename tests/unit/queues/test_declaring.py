"""Declared queues: RabbitMQ's arguments, refusals, and lifetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests.unit.queues.host import Host

from treecast.middleware.broker.queues import QueueSettings, QueueType, Reason, Refusal
from treecast.middleware.broker.queues.arguments import KNOWN


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"x-message-ttl": -1},
            "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}",
        ),
        ({"x-message-ttl": "5"}, "{unacceptable_type,longstr}"),
        ({"x-message-ttl": True}, "{unacceptable_type,bool}"),
        ({"x-message-ttl": 10.0}, "{unacceptable_type,double}"),
        ({"x-expires": 10.0}, "{unacceptable_type,double}"),
        ({"x-max-length": 10.0}, "{unacceptable_type,double}"),
        ({"x-queue-version": 2.0}, "{unacceptable_type,double}"),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1.0}, "{unacceptable_type,double}"),
        ({"x-message-ttl": Decimal(10)}, "{unacceptable_type,decimal}"),
        ({"x-message-ttl": datetime(2024, 1, 1, tzinfo=UTC)}, "{unacceptable_type,timestamp}"),
        ({"x-overflow": bytearray(b"drop-head")}, "{unacceptable_type,binary}"),
        ({"x-expires": 0}, "{value_zero,0}"),
        ({"x-expires": 315_360_000_001}, "{value_too_large,315360000001}"),
        ({"x-max-priority": 256}, "{max_value_exceeded,256}"),
        ({"x-overflow": "drop-tail"}, "invalid_overflow"),
        ({"x-dead-letter-routing-key": "k"}, "routing_key_but_no_dlx_defined"),
        ({"x-queue-type": "odd"}, "unsupported queue type 'odd'"),
        ({"x-queue-version": 1}, "unsupported queue version '1'"),
        ({"x-delivery-limit": 5}, "of queue type rabbit_classic_queue"),
        ({"x-queue-type": "quorum", "x-max-priority": 5}, "of queue type rabbit_quorum_queue"),
        ({"x-single-active-consumer": "yes"}, "{unacceptable_type,longstr}"),
    ],
)
def test_arguments_that_are_refused(host: Host, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        host.vhost.queue_definitions.declare(b"q", arguments=arguments)
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    assert words in caught.value.detail


def test_every_argument_has_a_value_that_is_taken(host: Host) -> None:
    values = {"x-queue-type": "classic", "x-overflow": "drop-head", "x-single-active-consumer": True}
    values |= {"x-dead-letter-exchange": "d", "x-dead-letter-routing-key": "k", "x-queue-mode": "lazy"}
    values |= {"x-dead-letter-strategy": "at-least-once", "x-max-age": "1D", "x-queue-leader-locator": "l"}
    for name, (check, _) in KNOWN.items():
        assert check(values.get(name, 2)) == "", name


def test_the_same_declared_twice_is_one_and_otherwise_refused(host: Host) -> None:
    queue = host.queue("q", max_length=5)
    assert host.queue("q", max_length=5) is queue
    with pytest.raises(Refusal, match=r"inequivalent arg 'x-max-length'.*received '6' but current is '5'"):
        host.queue("q", max_length=6)
    with pytest.raises(Refusal, match="received none but current is the value '5' of type 'signedint'"):
        host.queue("q")
    with pytest.raises(Refusal, match=r"inequivalent arg 'durable'.*received 'false' but current is 'true'"):
        host.vhost.queue_definitions.declare(b"q", durable=False, arguments={"x-max-length": 5})
    assert host.queue("r", queue_type="classic") is host.queue("r")


@pytest.mark.parametrize(
    ("name", "there", "given"),
    [
        ("x-message-ttl", 10, 10.0),
        ("x-expires", 10, 10.0),
        ("x-max-length", 1, True),
        ("x-max-priority", 1, 1.0),
        ("x-max-length-bytes", 5, Decimal(5)),
        ("x-dead-letter-exchange", "x", bytearray(b"x")),
    ],
)
def test_a_value_of_another_type_is_not_the_same(host: Host, name: str, there: object, given: object) -> None:
    host.vhost.queue_definitions.declare(b"q", arguments={name: there})
    host.vhost.queue_definitions.declare(b"q", arguments={name: there})
    with pytest.raises(Refusal, match=f"inequivalent arg '{name}'"):
        host.vhost.queue_definitions.declare(b"q", arguments={name: given})


def test_queues_are_of_the_default_type_if_they_can(host: Host) -> None:
    vhost = host.vhost
    before = vhost.queue_definitions.declare(b"before")
    vhost.queue_definitions.default_type = QueueType.QUORUM
    declared = vhost.queue_definitions.declare(b"q")
    assert declared.arguments.type is QueueType.QUORUM
    assert declared.asked == {"x-queue-type": "quorum"}
    assert (
        vhost.queue_definitions.declare(b"q")
        is vhost.queue_definitions.declare(b"q", arguments={"x-queue-type": "quorum"})
        is declared
    )
    assert (
        vhost.queue_definitions.declare(b"c", arguments={"x-queue-type": "classic"}).arguments.type
        is QueueType.CLASSIC
    )
    assert (
        vhost.queue_definitions.declare(b"x", exclusive=True, owner=host).arguments.type is QueueType.CLASSIC
    )
    assert vhost.queue_definitions.declare(b"a", auto_delete=True).arguments.type is QueueType.CLASSIC
    with pytest.raises(Refusal, match=r"'x-queue-type'.*received 'quorum' but current is 'classic'"):
        vhost.queue_definitions.declare(b"before")
    with pytest.raises(Refusal, match="server-named queue for type rabbit_quorum_queue"):
        vhost.queue_definitions.declare(b"", generated=b"amq.gen-1")
    vhost.ledger.restoring = True
    assert vhost.queue_definitions.declare(b"old").arguments.type is QueueType.CLASSIC
    assert before.arguments.type is QueueType.CLASSIC


def test_transient_queues_have_to_be_exclusive_unless_permitted(host: Host) -> None:
    with pytest.raises(Refusal, match="Feature `transient_nonexcl_queues` is deprecated") as caught:
        host.vhost.queue_definitions.declare(b"q", durable=False)
    assert caught.value.reason is Reason.INTERNAL_ERROR
    assert not host.vhost.queue_definitions.declare(
        b"mine", durable=False, exclusive=True, owner=host
    ).durable
    permitted = Host(QueueSettings(transient_queues=True))
    assert not permitted.vhost.queue_definitions.declare(b"q", durable=False).durable


def test_an_exclusive_queue_is_its_connections(host: Host) -> None:
    mine, other = object(), object()
    host.vhost.queue_definitions.declare(b"q", exclusive=True, owner=mine)
    for attempt in (
        lambda: host.vhost.queue_definitions.declare(b"q", exclusive=True, owner=other),
        lambda: host.vhost.queue_definitions.declare(b"q", owner=mine),
        lambda: host.vhost.router.owned(b"q", other),
        lambda: host.vhost.queue_definitions.delete(b"q", other),
    ):
        with pytest.raises(Refusal, match="cannot obtain exclusive access to locked queue 'q'") as caught:
            attempt()
        assert caught.value.reason is Reason.RESOURCE_LOCKED
    host.vhost.release(mine)
    assert host.vhost.queues == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durable": False}, "invalid property 'non-durable'"),
        ({"exclusive": True, "owner": 1}, "invalid property 'exclusive-owner'"),
        ({"auto_delete": True}, "invalid property 'auto-delete'"),
    ],
)
def test_what_a_quorum_queue_may_not_be(host: Host, options: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        host.vhost.queue_definitions.declare(b"q", arguments={"x-queue-type": "quorum"}, **options)  # type: ignore[arg-type]


def test_quorum_queues_can_be_refused_as_such() -> None:
    host = Host(QueueSettings(quorum=False))
    with pytest.raises(Refusal, match="the one copy"):
        host.queue("q", queue_type="quorum")


def test_a_server_named_queue(host: Host) -> None:
    assert host.vhost.queue_definitions.declare(b"", generated=b"amq.gen-1").name == b"amq.gen-1"
    with pytest.raises(Refusal, match="Cannot declare a server-named queue for type rabbit_quorum_queue"):
        host.vhost.queue_definitions.declare(b"", arguments={"x-queue-type": "quorum"})
    with pytest.raises(Refusal, match="contains reserved prefix"):
        host.vhost.queue_definitions.declare(b"amq.mine")


def test_deleting_only_what_is_unused_or_empty(host: Host) -> None:
    host.queue()
    host.publish(b"1", b"2")
    with pytest.raises(Refusal, match="queue 'q' in vhost '/' not empty"):
        host.vhost.queue_definitions.delete(b"q", None, if_empty=True)
    assert host.vhost.queue_definitions.delete(b"q", None, if_unused=True) == 2
    assert not host.memory.runs


def test_a_queue_that_nobody_uses_expires(host: Host) -> None:
    queue = host.queue("q", expires=5000)
    host.wait(3)
    assert host.get(queue) is None
    host.wait(4)
    assert b"q" in host.vhost.queues
    host.wait(1)
    assert b"q" not in host.vhost.queues


def test_messages_expire_at_the_head_without_anybody_asking(host: Host) -> None:
    queue = host.queue()
    host.publish(b"1", expiration=2000)
    host.publish(b"2")
    host.publish(b"3", expiration=1000)
    assert host.vhost.deadline == host.now + 2
    host.wait(2)
    assert queue.ready == 2
    assert host.drained("q") == [b"2"]
