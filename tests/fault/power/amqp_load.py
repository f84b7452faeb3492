"""AMQP: persistent messages with confirms in a durable queue; queues and bindings made and deleted."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from treecast.middleware.daemon.process import DaemonProcess

from .facts import Facts, Outcome
from .loads import Workers

KEPT, ROUTES = "kept", "routes"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connected(daemon: DaemonProcess) -> pika.BlockingConnection:
    host, port = daemon.address("amqp")
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, port, socket_timeout=20, blocked_connection_timeout=20)
    )


class AmqpLoad:
    """Implements `loads.Load`."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._number = itertools.count(1)
        self._cycle = 0

    def begin(self, daemon: DaemonProcess, cycle: int) -> None:
        self._cycle = cycle
        self._workers = Workers()
        publishing = connected(daemon).channel()
        publishing.confirm_delivery()
        publishing.exchange_declare(ROUTES, "direct", durable=True)
        publishing.queue_declare(KEPT, durable=True)
        self.facts.add("queues", KEPT)
        defining = connected(daemon).channel()
        self._workers.start("publish", lambda: self._publish(publishing))
        self._workers.start("declare", lambda: self._define(defining))

    def halt(self) -> None:
        self._workers.halt()

    def _publish(self, channel: BlockingChannel) -> None:
        body = b"%d-%d" % (self._cycle, next(self._number))
        channel.basic_publish("", KEPT, body, PERSISTENT, mandatory=True)
        self.facts.add("messages", body)
        time.sleep(0.003)

    def _define(self, channel: BlockingChannel) -> None:
        name = f"made-{self._cycle}-{next(self._number)}"
        channel.queue_declare(name, durable=True)
        self.facts.add("queues", name)
        channel.queue_bind(name, ROUTES, name)
        self.facts.add("bindings", name)
        time.sleep(0.1)
        if next(self._number) % 2:
            for kind in ("queues", "bindings"):
                self.facts.drop(kind, name)
            channel.queue_delete(name)
            self.facts.add("deleted queues", name)

    # --- what is left

    def audit(self, daemon: DaemonProcess, horizon: float, *, whole: bool) -> tuple[list[Outcome], list[str]]:
        connection = connected(daemon)
        problems: list[str] = []
        there = {name: _exists(connection, name) for name in self._names()}
        found = self._messages(connection) if there.get(KEPT) else []
        if len(found) != len(set(found)) and whole:
            problems.append(f"{len(found) - len(set(found))} messages are in the queue twice")
        seen = set(found)
        routed = self._routed(connection, there)
        connection.close()
        return [
            self.facts.settle("queues", horizon, lambda key, _: there[key]),
            self.facts.settle("deleted queues", horizon, lambda key, _: not there[key]),
            self.facts.settle("bindings", horizon, lambda key, _: key in routed),
            self.facts.settle("messages", horizon, lambda key, _: key in seen),
        ], problems

    def _names(self) -> set[str]:
        return {*self.facts.of("queues"), *self.facts.of("deleted queues"), *self.facts.of("bindings"), KEPT}

    def _messages(self, connection: Any) -> list[bytes]:
        """Reads the queue without acknowledging anything."""
        channel = connection.channel()
        total = channel.queue_declare(KEPT, durable=True, passive=True).method.message_count
        found: list[bytes] = []
        if total:
            for _, _, body in channel.consume(KEPT, inactivity_timeout=20):
                if body is not None:
                    found.append(body)
                if body is None or len(found) == total:
                    break
            channel.cancel()
        channel.close()
        return found

    def _routed(self, connection: Any, there: dict[str, bool]) -> set[str]:
        """Returns the queues that get a message by their binding. The messages are taken again."""
        channel = connection.channel()
        channel.confirm_delivery()
        for name in self.facts.of("bindings"):
            if there[name]:
                try:
                    channel.basic_publish(ROUTES, name, b"probe", mandatory=True)
                except (pika.exceptions.UnroutableError, ChannelClosedByBroker):
                    if channel.is_closed:
                        channel = connection.channel()
                        channel.confirm_delivery()
        return {
            name
            for name in self.facts.of("bindings")
            if there[name] and channel.basic_get(name, auto_ack=True)[0] is not None
        }


def _exists(connection: Any, name: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(name, durable=True, passive=True)
    except ChannelClosedByBroker:
        return False
    channel.close()
    return True
