"""Frames that clients must not send.

Channels 1 and 2 are open, and the durable queue `bad` has one message. Each case has the bytes, and the
answer of a server: (channel, code) of the close, channel 0 for the connection, (-1, 0) for a connection that
ends without a reason, and None for nothing.
"""

from __future__ import annotations

from tests.fault.amqp_wire import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    Basic,
    Channel,
    Connection,
    Queue,
    Wire,
    head,
    method,
    publish,
    raw_frame,
)

Outcome = tuple[int, int] | None
PUBLISH = method(Basic.Publish(routing_key="bad"))
HALF = raw_frame(BODY, 1, b"abc")


def nested(depth: int) -> bytes:
    """Returns a queue.declare with a table inside a table, `depth` times."""
    value = b"S\0\0\0\1x"
    for _ in range(depth):
        value = b"F" + (2 + len(value)).to_bytes(4, "big") + b"\1a" + value
    table = (2 + len(value)).to_bytes(4, "big") + b"\1a" + value
    return raw_frame(METHOD, 1, b"\0\x32\0\x0a" + b"\0\0\4deep\2" + table)


def begin(address: tuple[str, int]) -> Wire:
    """Returns a connection in the state in which a case's bytes are sent."""
    wire = Wire(address).open(1, 2)
    wire.declare("bad")
    wire.ask(Queue.Purge(queue="bad"), Queue.PurgeOk)
    wire.send(publish("bad", b"there"))
    wire.ask(Basic.Qos(0, 0), Basic.QosOk)
    return wire


CASES: dict[str, tuple[bytes, Outcome]] = {
    "an ack of what never came": (method(Basic.Ack(7)), (1, 406)),
    "an ack of what never came, multiple": (method(Basic.Ack(7, True)), (1, 406)),
    "a nack of what never came": (method(Basic.Nack(7)), (1, 406)),
    "a reject of what never came": (method(Basic.Reject(7)), (1, 406)),
    "an ack given twice": (
        method(Basic.Get(queue="bad")) + method(Basic.Ack(1)) + method(Basic.Ack(1)),
        (1, 406),
    ),
    "a channel beyond channel-max": (method(Channel.Open(), 2048), (0, 530)),
    "a channel opened twice": (method(Channel.Open()), (0, 504)),
    "a method on a channel that is not open": (method(Queue.Declare(queue="bad", passive=True), 7), (0, 504)),
    "a method on a channel that the client closed": (
        method(Channel.Close(0, "", 0, 0)) + method(Queue.Declare(queue="bad", passive=True)),
        (0, 504),
    ),
    "a publish on a channel that the client closed": (
        method(Channel.Close(0, "", 0, 0)) + publish("bad", b"x"),
        (0, 504),
    ),
    "a publish to no exchange": (publish("bad", b"x", "gone"), (1, 404)),
    "an unknown queue": (method(Basic.Get(queue="no-such-queue")), (1, 404)),
    "a method that does not exist": (raw_frame(METHOD, 1, b"\0\x63\0\x01"), (0, 503)),
    "half a method": (raw_frame(METHOD, 1, b"\0\x32\0\x0a\0"), (0, 502)),
    "a method without a class": (raw_frame(METHOD, 1, b""), (0, 502)),
    "a table that is cut off": (
        raw_frame(METHOD, 1, b"\0\x32\0\x0a" + b"\0\0\4deep\2" + b"\0\0\0\x20\1aS\0\0\0\1x"),
        (0, 502),
    ),
    "a header without a publish": (head(1), (0, 505)),
    "a body without a publish": (HALF, (0, 505)),
    "a body without a header": (PUBLISH + HALF, (0, 505)),
    "a publish amid a publish": (PUBLISH + PUBLISH, (0, 505)),
    "a method amid a body": (PUBLISH + head(6) + HALF + method(Basic.Qos(0, 1)), (0, 505)),
    "a header of another class": (PUBLISH + head(3, kind=50), (0, 505)),
    "a body longer than announced": (PUBLISH + head(2) + HALF, (0, 501)),
    "a body that goes on after its end": (PUBLISH + head(3) + HALF + HALF, (0, 505)),
    "a body shorter than announced, then another": (
        PUBLISH + head(6) + HALF + publish("bad", b"x"),
        (0, 505),
    ),
    "an unfinished body": (PUBLISH + head(6) + HALF, None),
    "contents of two channels interleaved": (
        PUBLISH
        + method(Basic.Publish(routing_key="bad"), 2)
        + head(3)
        + head(3, 2)
        + raw_frame(BODY, 2, b"abc")
        + HALF,
        None,
    ),
    "a header on the channel beside": (PUBLISH + head(3, 2), (0, 505)),
    "a body on the channel beside": (PUBLISH + head(3) + raw_frame(BODY, 2, b"abc"), (0, 505)),
    "a body on a channel that is not open": (raw_frame(BODY, 7, b"abc"), (0, 504)),
    "a body frame of no bytes": (PUBLISH + head(3) + raw_frame(BODY, 1, b"") + HALF, None),
    "a header frame of no bytes": (PUBLISH + raw_frame(HEADER, 1, b""), (0, 501)),
    "a frame larger than frame_max": (PUBLISH + head(1 << 18) + raw_frame(BODY, 1, bytes(1 << 18)), (0, 501)),
    "a frame of four gigabytes": (b"\3\0\1\xff\xff\xff\xffabc", (0, 501)),
    "a frame with another end": (raw_frame(METHOD, 1, b"\0\x3c\0\x0a", b"\0"), (0, 501)),
    "a frame of no known type": (raw_frame(9, 1, b"abc"), (0, 501)),
    "a heartbeat on a channel": (raw_frame(HEARTBEAT, 1, b""), (0, 505)),
    "a method of the connection on a channel": (method(Connection.Close(200, "", 0, 0), 1), (0, 503)),
    "an answer that nobody asked for": (method(Basic.QosOk()), (0, 503)),
    "an immediate publish": (method(Basic.Publish(routing_key="bad", immediate=True)) + head(0), (0, 540)),
    "a message larger than the limit": (PUBLISH + head(1 << 40), (1, 406)),
    "tables 100 deep": (nested(100), (0, 502)),
}
