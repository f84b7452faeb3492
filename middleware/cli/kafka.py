"""What `produce` and `consume` share: the Kafka client's errors in one line, and its log kept quiet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from treecast.middleware.api.discovery import Address

from .output import CommandError

KAFKA_LOGS = "kafka"


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """The client repeats in its log what it raises."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def explained(address: Address) -> Iterator[None]:
    """Turns the Kafka client's errors into a CommandError."""
    from kafka.errors import KafkaError, KafkaTimeoutError, NoBrokersAvailable

    try:
        yield
    except (NoBrokersAvailable, KafkaTimeoutError) as error:
        what = "no Kafka broker answers" if isinstance(error, NoBrokersAvailable) else f"{error};"
        raise CommandError(
            f"{what} at {address}; start one with `treecast up`, or name another with --kafka HOST:PORT"
        ) from error
    except KafkaError as error:
        raise CommandError(f"{address} refused: {error}") from error
