"""The schema that a topic declares, for filters: DescribeConfigs 4, after its descriptors in Apache Kafka.

A daemon applies the filter of a read by the topic's schema, so a task reads it before it applies the filter
again. Other brokers know no such setting, and filters then read values as JSON.
"""

from __future__ import annotations

from treecast.middleware.filters.schemas.reader import SchemaReader, reader_of
from treecast.middleware.load.frames import LoadError
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.topic_schema import SCHEMA

from ..errors import ReadError
from ..fields import Fields, answered, compact, framed, uvarint
from ..links import LINKS
from ..servers import Servers

_DESCRIBE_CONFIGS, _VERSION = 32, 4
_TOPIC = b"\x02"


def schema_of(servers: Servers, topic: str, timeout: float) -> SchemaReader | None:
    """Returns a topic's schema; None if it declares none. Raises ReadError if nobody answers."""
    try:
        with LINKS.lent_any(servers, timeout) as link:
            text = parse_setting(link.connection.call(setting_request(topic)))
    except (OSError, LoadError) as error:
        raise ReadError(f"no Kafka face answers at {servers}: {error}") from error
    try:
        return reader_of(text) if text else None
    except TreecastError as error:
        raise ReadError(f"the schema of {topic} cannot be read: {error}") from error


def setting_request(topic: str) -> bytes:
    """Asks for the one setting of a topic."""
    body = uvarint(2) + _TOPIC + compact(topic) + uvarint(2) + compact(SCHEMA) + b"\0"
    return framed(_DESCRIBE_CONFIGS, _VERSION, body + b"\0\0\0")


def parse_setting(payload: bytes) -> str:
    """Returns the setting; empty if there is none. Raises LoadError if the answer is invalid."""
    fields: Fields = answered(payload)
    for _ in range(fields.uvarint() - 1):
        fields.skip(2)  # an error: then there are no settings
        fields.string()
        fields.skip(1)
        fields.string()
        for _ in range(fields.uvarint() - 1):
            name, value = fields.string(), fields.string()
            if name == SCHEMA:
                return value
            fields.skip(3)  # read only, source, sensitive
            for _ in range(fields.uvarint() - 1):
                fields.string()
                fields.string()
                fields.skip(1)
                fields.tags()
            fields.skip(1)  # type
            fields.string()
            fields.tags()
        fields.tags()
    return ""
