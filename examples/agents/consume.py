"""An application that consumes with pika: it writes the number of each message that it has acknowledged.

    python -m examples.agents.consume QUEUE FILE USER

It connects again whenever its server is gone, as applications do. SIGTERM ends it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError


def consume(queue: str, file: Path, user: str) -> None:
    login = pika.PlainCredentials(user, user)
    parameters = pika.ConnectionParameters("127.0.0.1", 5672, credentials=login)
    with file.open("a", buffering=1) as numbers:

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            numbers.write(body.split(b" ", 1)[0].decode() + "\n")
            channel.basic_ack(method.delivery_tag)

        while True:
            try:
                connection = pika.BlockingConnection(parameters)
                channel = connection.channel()
                channel.basic_qos(prefetch_count=500)
                channel.basic_consume(queue, take)
                channel.start_consuming()
            except (AMQPError, OSError):
                time.sleep(0.5)


if __name__ == "__main__":
    consume(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
