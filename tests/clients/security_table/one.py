"""One cell of the table as a process: `python -m tests.clients.security_table.one CLIENT JSON`."""

from __future__ import annotations

import os
import sys

from . import kafka_clients, other_clients
from .case import parse

CLIENTS = {**kafka_clients.CLIENTS, **other_clients.MQTT, **other_clients.AMQP}
FACES = {
    **dict.fromkeys(kafka_clients.CLIENTS, "kafka"),
    **dict.fromkeys(other_clients.MQTT, "mqtt"),
    **dict.fromkeys(other_clients.AMQP, "amqp"),
}

if __name__ == "__main__":
    print(f"told {CLIENTS[sys.argv[1]](parse(sys.argv[2]))}", flush=True)
    os._exit(0)  # clients that try again for ever do not keep it
