"""Wire-level definitions shared by MQTT 3.1.1 and 5.0: packet types, reason codes and protocol errors.

Every packet is `type and flags (1 byte) | remaining length (1 to 4 bytes) | that many bytes`. Sources: OASIS
MQTT Version 3.1.1 (2014) and MQTT Version 5.0 (2019). Clauses carry the numbers of version 5.0; `clause`
returns the version 3.1.1 number of a rule if it differs. A rule without a number is identified by its
section, such as 2.1.4.

`codec_read` and `codec_properties` handle fields, `codec_packets` whole packets. On the hot path, PUBLISH is
read and written by `codec_publish` (its properties) and `wire.mqtt_publish`.
"""

from __future__ import annotations

from typing import Final

V311: Final = 4  # the protocol level in CONNECT
V5: Final = 5

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

NAMES: Final = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

# Reason codes of version 5.0, section 2.4. The granted QoS values of SUBACK are 0 to 2.
SUCCESS: Final = 0x00
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
UNSPECIFIED: Final = 0x80
MALFORMED: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_ERROR: Final = 0x83
UNSUPPORTED_VERSION: Final = 0x84
BAD_CLIENT_ID: Final = 0x85
BAD_CREDENTIALS: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
SHUTTING_DOWN: Final = 0x8B
BAD_AUTH_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
TAKEN_OVER: Final = 0x8E
BAD_FILTER: Final = 0x8F
BAD_TOPIC: Final = 0x90
PACKET_ID_IN_USE: Final = 0x91
PACKET_ID_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
BAD_TOPIC_ALIAS: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE: Final = 0x98
BAD_PAYLOAD_FORMAT: Final = 0x99
SHARED_NOT_SUPPORTED: Final = 0x9E

# CONNACK return codes of version 3.1.1, section 3.2.2.3, for the reasons that have one.
RETURN_CODES: Final = {
    SUCCESS: 0,
    UNSUPPORTED_VERSION: 1,
    BAD_CLIENT_ID: 2,
    SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3,
    SHUTTING_DOWN: 3,
    BAD_CREDENTIALS: 4,
    NOT_AUTHORIZED: 5,
    QUOTA_EXCEEDED: 3,
}

MAX_REMAINING: Final = 268_435_455

_OF_311: Final = {
    "MQTT-1.5.4-1": "MQTT-1.5.3-1",
    "MQTT-1.5.4-2": "MQTT-1.5.3-2",
    "MQTT-2.1.3-1": "MQTT-2.2.2-2",
    "MQTT-2.2.1-3": "MQTT-2.3.1-1",
    "MQTT-2.2.1-2": "MQTT-2.3.1-5",
    "MQTT-3.1.2-9": "MQTT-3.1.2-8",
    "MQTT-3.1.2-11": "MQTT-3.1.2-13",
    "MQTT-3.1.2-12": "MQTT-3.1.2-14",
    "MQTT-3.1.2-13": "MQTT-3.1.2-15",
    "MQTT-3.1.2-22": "MQTT-3.1.2-24",
    "MQTT-3.8.3-2": "MQTT-3.8.3-3",
    "MQTT-3.8.3-5": "MQTT-3-8.3-4",
    "MQTT-4.7.1-1": "MQTT-4.7.1-2",
    "MQTT-4.7.1-2": "MQTT-4.7.1-3",
}


class MqttError(Exception):
    """A protocol violation or a refusal: `reason` is the version 5.0 code, `rule` the clause."""

    def __init__(self, reason: int, rule: str, detail: str) -> None:
        super().__init__(f"{detail} [{rule}]")
        self.reason = reason
        self.rule = rule
        self.detail = detail


def malformed(rule: str, detail: str) -> MqttError:
    """Returns the error for a Malformed Packet, which cannot be parsed (section 1.2)."""
    return MqttError(MALFORMED, rule, detail)


def protocol_error(rule: str, detail: str) -> MqttError:
    """Returns the error for a Protocol Error: a parsable packet that is not allowed (section 1.2)."""
    return MqttError(PROTOCOL_ERROR, rule, detail)


def clause(rule: str, version: int) -> str:
    """Returns the number of `rule` in the given version."""
    return _OF_311.get(rule, rule) if version == V311 else rule
