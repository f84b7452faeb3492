"""An application that publishes with pika and waits for the confirm of each message.

    python -m examples.agents.publish EXCHANGE RATE FILE USER

It writes the number of each confirmed message into the file, until SIGTERM. RATE: messages a second at most.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time
from pathlib import Path

import pika

FILLER = b"x" * 200  # bytes of each message beside its number


def publish(exchange: str, rate: float, file: Path, user: str) -> None:
    login = pika.PlainCredentials(user, user)
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", 5672, credentials=login))
    channel = connection.channel()
    channel.confirm_delivery()
    durable = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    began = time.monotonic()
    with file.open("a", buffering=1) as numbers:
        for number in itertools.count():
            if ended:
                break
            key = f"sensor.{number % 7}.heat"
            channel.basic_publish(exchange, key, b"%d %s" % (number, FILLER), durable)
            numbers.write(f"{number}\n")
            ahead = number / rate - (time.monotonic() - began)
            if ahead > 0:
                connection.sleep(ahead)
    connection.close()


if __name__ == "__main__":
    publish(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
