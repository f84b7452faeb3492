"""Two changes to publishes on their way: another topic, and the loop guard's user property.

A message from the cluster gets a user property `treecast-hops: CLUSTER/SITE` for the broker. What the broker
gives out with a hop of the same cluster has crossed it already, by whichever way it came back.
"""

from __future__ import annotations

from typing import Final, Protocol

from librt.strings import BytesWriter
from mypy_extensions import i64

from treecast.middleware.wire.mqtt_publish import head_at, uint16_at, write_varint
from treecast.shims.mqtt.codec import PUBLISH, MqttError
from treecast.shims.mqtt.codec_properties import USER_PROPERTY, read_properties
from treecast.shims.mqtt.codec_read import Reader, sized, varint_bytes

NAME: Final = "treecast-hops"
LOCKS: Final = b"treecast/agents/"  # what the topics of locks begin with, which stay at their broker
_MARK: Final = bytes([USER_PROPERTY]) + sized(NAME.encode())


class Topics(Protocol):
    """The topic at the other end; b"" if it has none."""

    def get(self, topic: bytes) -> bytes: ...


def hop_property(cluster: str, site: str) -> bytes:
    """Returns the encoded user property of a site."""
    return _MARK + sized(f"{cluster}/{site}".encode())


def has_crossed(properties: bytes, cluster: str) -> bool:
    """Whether a message with these properties, without their length, has a hop of a cluster."""
    if _MARK not in properties:
        return False
    whole = varint_bytes(len(properties)) + properties
    try:
        found = read_properties(Reader(whole, 0, len(whole)), PUBLISH)
    except MqttError:
        return False
    return any(name == NAME and value.startswith(f"{cluster}/") for name, value in found.user)


def with_topics(data: bytes, topics: Topics) -> bytes:
    """Returns a run of publishes (`wire.mqtt_publish`) with other topics. Those without one are left out."""
    out = BytesWriter()
    first = data[0]
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        size, body = head_at(data, at, end)
        named = body + 2 + uint16_at(data, body)
        at = body + size
        topic = topics.get(data[body + 2 : named])
        if topic:
            length = len(topic)
            out.append(first)
            write_varint(out, 2 + length + int(at - named))
            out.append(length >> 8)
            out.append(length & 0xFF)
            out.write(topic)
            out.write(data[named:at])
    return out.getvalue()
