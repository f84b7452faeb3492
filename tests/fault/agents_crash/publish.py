"""An application that publishes numbered messages to a RabbitMQ server and survives its kills.

    python publish.py EXCHANGE FIRST FILE USER

Each number is published once. It is written into FILE once the server has confirmed it. After a lost
connection the application connects again and goes on with the next number: whether the server had taken the
last one, nobody knows. SIGTERM ends it; its last line is `end NUMBER`, the first number that it has not used.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

FILLER = b"x" * 200  # bytes of each message beside its number
PAUSE = 0.2  # seconds until the next attempt to connect


@contextlib.contextmanager
def connected(user: str) -> Iterator[BlockingChannel]:
    log_in = pika.PlainCredentials(user, user)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", 5672, credentials=log_in, blocked_connection_timeout=30
    )
    connection = pika.BlockingConnection(parameters)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with contextlib.suppress(AMQPError, OSError):
            connection.close()


def publish(exchange: str, first: int, file: Path, user: str) -> None:
    ended = False

    # It raises nothing: raised while pika works, an exception may be swallowed there, and with it a confirm
    # for which pika then waits for ever.
    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    next_number, durable = first, pika.BasicProperties(delivery_mode=2)
    with file.open("a", buffering=1) as confirmed:
        while not ended:
            try:
                with connected(user) as channel:
                    while not ended:
                        number, next_number = next_number, next_number + 1
                        body = b"%d %s" % (number, FILLER)
                        channel.basic_publish(exchange, f"sensor.{number % 7}.heat", body, durable)
                        confirmed.write(f"{number}\n")
            except (AMQPError, OSError):
                time.sleep(PAUSE)
        confirmed.write(f"end {next_number}\n")


if __name__ == "__main__":
    publish(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
