"""The bytes of strangers: requests and packets, made without any client, which would refuse to send them."""

from __future__ import annotations

import struct


def text(value: bytes) -> bytes:
    """A string with a length of 16 bits, as in Kafka's old requests and in MQTT."""
    return struct.pack(">H", len(value)) + value


def varint(value: int) -> bytes:
    """MQTT's variable byte integer; also Kafka's unsigned varint."""
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def zigzag(value: int) -> bytes:
    """A varint of a record."""
    return varint((value << 1) ^ (value >> 63))


# --- Kafka


def request(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    rest = struct.pack(">hhi", key, version, 1) + text(b"stranger") + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(rest)) + rest


def unfinished_request(size: int) -> bytes:
    """The beginning of a Produce request of `size` bytes."""
    return struct.pack(">ihhi", size, 0, 7, 1)


def bomb(unpacked: int) -> bytes:
    """A batch of one record of `unpacked` zero bytes, compressed with zstd to a few kilobytes."""
    import cramjam
    import crc32c

    body = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(unpacked) + bytes(unpacked) + zigzag(0)
    packed = bytes(cramjam.zstd.compress(zigzag(len(body)) + body, level=3))
    rest = struct.pack(">hiqqqhii", 4, 0, 0, 0, -1, -1, -1, 1) + packed
    return struct.pack(">qiibI", 0, 9 + len(rest), 0, 2, crc32c.crc32c(rest)) + rest


def produce(topic: bytes, batches: list[bytes]) -> bytes:
    """A Produce request that names partition 0 of the topic once for each batch."""
    parts = b"".join(struct.pack(">ii", 0, len(batch)) + batch for batch in batches)
    head = struct.pack(">hhi", -1, 1, 30_000) + struct.pack(">i", 1) + text(topic)
    return request(0, 7, head + struct.pack(">i", len(batches)) + parts)


def metadata(names: list[bytes]) -> bytes:
    """A Metadata request that lets topics be created."""
    return request(3, 4, struct.pack(">i", len(names)) + b"".join(map(text, names)) + b"\1")


def compact(value: bytes) -> bytes:
    return varint(len(value) + 1) + value


def heartbeat(group: bytes, member: bytes, pattern: bytes) -> bytes:
    """A ConsumerGroupHeartbeat of a new member that subscribes to a regular expression."""
    body = compact(group) + compact(member) + struct.pack(">i", 0) + b"\0\0" + struct.pack(">i", 300_000)
    return request(68, 1, body + b"\1" + compact(pattern) + b"\0" + b"\1" + b"\0", flexible=True)


# --- MQTT


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def connect(client: bytes, properties: bytes = b"", user: tuple[bytes, bytes] | None = None) -> bytes:
    flags, credentials = (0xC2, text(user[0]) + text(user[1])) if user is not None else (2, b"")
    head = text(b"MQTT") + bytes([5, flags, 0, 0]) + varint(len(properties)) + properties
    return packet(0x10, head + text(client) + credentials)


def subscribe(filters: list[bytes]) -> bytes:
    return packet(0x82, b"\0\1\0" + b"".join(text(one) + b"\0" for one in filters))


def publish(topic: bytes, properties: bytes = b"") -> bytes:
    """A PUBLISH with QoS 1."""
    return packet(0x32, text(topic) + b"\0\1" + varint(len(properties)) + properties + b"x")


def unfinished_packet(first: int, size: int) -> bytes:
    return bytes([first]) + varint(size)


EMPTY_USER_PROPERTY = b"\x26\0\0\0\0"

# --- AMQP

AMQP_HEADER = b"AMQP\0\0\x09\x01"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def start_ok(user: bytes, password: bytes) -> bytes:
    response = b"\0" + user + b"\0" + password
    body = (
        struct.pack(">HHI", 10, 11, 0) + b"\5PLAIN" + struct.pack(">I", len(response)) + response + b"\5en_US"
    )
    return frame(1, 0, body)
