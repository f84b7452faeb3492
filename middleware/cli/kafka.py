"""Shared by `produce` and `consume`: one-line errors of the Kafka client."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from treecast.middleware.api.discovery import Endpoint

from .options import tell_which
from .output import CommandError

KAFKA_LOGS = "kafka"
CONNECT_SECONDS = 5.0
BOOTSTRAP_MS = 10_000


@contextmanager
def explained(endpoint: Endpoint) -> Iterator[None]:
    """Turns the Kafka client's errors into a CommandError; fails at once if nobody listens."""
    from kafka.errors import KafkaError

    address = endpoint.address
    advice = "start one with `treecast up`, or name another with --kafka HOST:PORT"
    try:
        # The client itself would retry for half a minute.
        socket.create_connection((address.host, address.port), CONNECT_SECONDS).close()
    except OSError as error:
        raise CommandError(f"no Kafka broker listens at {address}; {advice}") from error
    tell_which(endpoint)
    try:
        yield
    except KafkaError as error:
        raise CommandError(f"{address}: {_text(error)}") from error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
