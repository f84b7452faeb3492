"""Runs sequences of packets at two MQTT brokers, or at one and at a cluster of two hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from bench.peers.mosquitto import MosquittoPeer
from tests.foreign.sequences import Difference, Run, one_host, only, two_hosts

from .client import Address, Client
from .steps import CLIENTS, TOPICS, Step, sequence

PATIENCE_S: Final = 5.0  # until the clients of both have seen the same
POLL_S: Final = 0.01

Seen = list[tuple[list[object], list[object]]]


class Side:
    """The clients of one broker, or of several hosts in turn."""

    def __init__(self, addresses: Sequence[Address], seed: int) -> None:
        self._clients = [
            Client(addresses[number % len(addresses)], f"compared-{seed}-{number}")
            for number in range(CLIENTS)
        ]
        self._outcome: object = None
        self._seen: Seen = []

    def do(self, step: Step) -> None:
        client = self._clients[step.client]
        self._outcome = getattr(client, step.name)(**step.given)
        client.catch_up()
        self._seen = [([], []) for _ in self._clients]

    def seen(self) -> tuple[object, Seen]:
        """Returns what the clients have seen since the last step began."""
        for client, (arrived, answers) in zip(self._clients, self._seen, strict=True):
            client.catch_up()
            more, further = client.take()
            arrived[:] = sorted([*arrived, *more], key=str)
            answers += further
        return self._outcome, self._seen

    def forget(self) -> None:
        """Ends the sessions, and removes what is retained."""
        for client in self._clients:
            client.connect(4, True, 0, None)
        for topic in TOPICS:
            self._clients[0].publish(topic, b"", 1, True, False)
        for client in self._clients:
            client.catch_up()
            client.disconnect(False, False)


def run(settings: Run, seeds: range) -> list[Difference]:
    peers: AbstractContextManager[Sequence[Address]] = cluster() if settings.far else mosquitto()
    with one_host(only("mqtt")) as daemon, peers as there:

        def compare(seed: int) -> Difference | None:
            sides = Side([daemon.address("mqtt")], seed), Side(there, seed)
            try:
                return _compare(settings, sides, seed)
            finally:
                for side in sides:
                    side.forget()

        return settings.differences(seeds, "two hosts" if settings.far else "Mosquitto", compare)


def _compare(settings: Run, sides: tuple[Side, Side], seed: int) -> Difference | None:
    for number, step in enumerate(sequence(seed, settings.count, far=settings.far), 1):
        described = f"client {step.client}: {step.name} {step.given}"
        for side in sides:
            side.do(step)
        deadline = time.monotonic() + PATIENCE_S
        while (one := sides[0].seen()) != (other := sides[1].seen()):
            if time.monotonic() > deadline:
                return Difference(seed, number, described, one, other)
            time.sleep(POLL_S)
        settings.note(number, described, one)
    return None


# --- brokers


@contextmanager
def cluster() -> Iterator[Sequence[Address]]:
    with two_hosts(only("mqtt")) as hosts:
        yield [host.address("mqtt") for host in hosts]


class Mosquitto(MosquittoPeer):
    """Sends a message once for each matching subscription, as a daemon does."""

    def lines(self) -> list[str]:
        return [*super().lines(), "allow_duplicate_messages true"]


@contextmanager
def mosquitto() -> Iterator[Sequence[Address]]:
    broker = Mosquitto()
    broker.start()
    try:
        yield [broker.address]
    finally:
        broker.stop()
