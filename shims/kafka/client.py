"""kafka-python's clients, which find the daemon of their host by themselves.

They take the same arguments as kafka-python's clients. Without `bootstrap_servers` they connect to the
address in `TREECAST_KAFKA`, else to the daemon whose socket is in the runtime directory, else to
localhost:9092.
"""

from __future__ import annotations

from typing import Any

import kafka

from treecast.middleware.api.discovery import find_face


def _found(configs: dict[str, Any]) -> dict[str, Any]:
    """Returns `configs`, with the host's daemon as `bootstrap_servers` unless others are given."""
    if "bootstrap_servers" in configs:
        return configs
    return configs | {"bootstrap_servers": str(find_face("kafka").address)}


class KafkaProducer(kafka.KafkaProducer):  # type: ignore[misc]
    """`kafka.KafkaProducer` for the daemon of this host."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**_found(configs))


class KafkaConsumer(kafka.KafkaConsumer):  # type: ignore[misc]
    """`kafka.KafkaConsumer` for the daemon of this host."""

    def __init__(self, *topics: str, **configs: Any) -> None:
        super().__init__(*topics, **_found(configs))


class KafkaAdminClient(kafka.KafkaAdminClient):  # type: ignore[misc]
    """`kafka.KafkaAdminClient` for the daemon of this host."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**_found(configs))
