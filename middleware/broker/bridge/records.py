"""Conversion between MQTT messages and records of Kafka topics.

| message             | record                                                               |
| ------------------- | -------------------------------------------------------------------- |
| payload             | value; a record without a value is an empty payload                   |
| QoS                 | header `mqtt.qos`, `1` or `2`, left out for 0; without `mqtt.client` it is 1 |
| retain              | header `mqtt.retain`, the message's stamp (12 bytes)                  |
| expiry              | header `mqtt.expires`, milliseconds since the Unix epoch as decimals  |
| publisher           | header `mqtt.client`: host id, `/`, client id                         |
| properties          | headers (`wire.mqtt_headers`)                                         |
| time of publishing  | timestamp                                                             |

The record has no key, because MQTT has none. MQTT clients do not see a record's key.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import NEVER, Message
from treecast.middleware.model.records import Record
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of

QOS: Final = "mqtt.qos"
RETAIN: Final = "mqtt.retain"
EXPIRES: Final = "mqtt.expires"
CLIENT: Final = "mqtt.client"
_STAMP_BYTES: Final = 12


def record_of(message: Message, publisher: bytes, now_ms: int) -> Record:
    """Returns a message as a record. `publisher`: the value of `mqtt.client`."""
    headers: list[tuple[str, bytes | None]] = [(CLIENT, publisher)]
    if message.qos:
        headers.append((QOS, b"%d" % message.qos))
    if message.retain:
        headers.append((RETAIN, message.stamp.to_bytes(_STAMP_BYTES, "big")))
    if message.expires_at != NEVER:
        headers.append((EXPIRES, b"%d" % int(message.expires_at * 1000)))
    if message.properties:
        headers.extend(headers_of(message.properties))
    return Record(None, message.payload, tuple(headers), now_ms)


def message_of(topic: bytes, record: Record) -> tuple[Message, bytes]:
    """Returns a record as a message, and the value of `mqtt.client`: empty for records of other faces."""
    message, publisher = Message(topic, record.value or b"", 1), b""
    for name, value in record.headers:
        if not name.startswith("mqtt.") or value is None:
            continue
        if name == CLIENT:
            publisher = value
        elif name == RETAIN and len(value) == _STAMP_BYTES:
            message.retain = True
            message.stamp = int.from_bytes(value, "big")
        elif name == EXPIRES and value.isdigit() and len(value) < 18:
            message.expires_at = int(value) / 1000
    message.qos = _qos(record, publisher)
    if record.headers:
        message.properties = properties_of(record.headers)
    return message, publisher


def _qos(record: Record, publisher: bytes) -> int:
    for name, value in record.headers:
        if name == QOS and value in (b"1", b"2"):
            return 1 if value == b"1" else 2
    return 0 if publisher else 1
