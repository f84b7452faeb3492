"""Routing from an exchange and keys to queues, through bindings between exchanges, each visited once.

An alternate exchange gets the messages that its exchange cannot route, for each exchange on the way
(RabbitMQ's rule). Routes that depend on keys only are cached until a definition changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from treecast.middleware.model.wishes import NoSchemas, Schemas

from .any_queue import AnyQueue
from .exchange import Destination, Exchange, ExchangeType, HeaderReader
from .message import Run
from .refusals import Reason, Refusal, not_found, text

DEFAULT: Final = b""
_REMEMBERED: Final = 10_000  # keys


class Outlet(Protocol):
    """A further receiver of messages published to one exchange: other faces and other hosts."""

    def direct(self, run: Run) -> tuple[bytes, ...]:
        """Returns the routing keys by which queues get the run now. By the others it will come back from
        there."""

    def publish(self, run: Run) -> tuple[bool, list[int]]:
        """Publishes the run. Returns (whether there are receivers, indexes of the messages refused)."""

    def topics(self, run: Run) -> list[bytes]:
        """Returns the MQTT topics that `publish` would publish the run to."""


class Router:
    """The exchanges and queues of one virtual host, and the routing between them.

    `routes`: the queues of the exchanges and keys that were met, where only these decide.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exchanges: dict[bytes, Exchange] = {}
        self.queues: dict[bytes, AnyQueue] = {}
        self.reader: HeaderReader | None = None
        self.schemas: Schemas = NoSchemas()
        self.routes: dict[tuple[bytes, bytes], list[AnyQueue]] = {}

    def changed(self) -> None:
        """Clears the cached routes after a change of definitions."""
        if self.routes:
            self.routes = {}

    def exchange(self, name: bytes) -> Exchange:
        """Returns the exchange. Refuses with NOT_FOUND if there is none."""
        found = self.exchanges.get(name)
        if found is None:
            raise not_found("exchange", name, self.name)
        return found

    def queue(self, name: bytes) -> AnyQueue:
        """Returns the queue. Refuses with NOT_FOUND if there is none."""
        found = self.queues.get(name)
        if found is None:
            raise not_found("queue", name, self.name)
        return found

    def owned(self, name: bytes, owner: object) -> AnyQueue:
        """Returns the queue if connection `owner` may use it. Refuses with NOT_FOUND or RESOURCE_LOCKED."""
        queue = self.queue(name)
        if queue.owner is not None and queue.owner is not owner:
            raise self.locked(name)
        return queue

    def locked(self, name: bytes) -> Refusal:
        return Refusal(
            Reason.RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked queue '{text(name)}' in vhost '{self.name}'. It could "
            "be originally declared on another connection or the exclusive property value does not match "
            "that of the original declaration.",
        )

    def may_publish(self, name: bytes) -> None:
        """Refuses with NOT_FOUND, or with ACCESS_REFUSED if the exchange is internal."""
        if name != DEFAULT and self.exchange(name).internal:
            raise Refusal(
                Reason.ACCESS_REFUSED,
                f"cannot publish to internal exchange '{text(name)}' in vhost '{self.name}'",
            )

    def looks_at_headers(self, name: bytes) -> bool:
        """Whether routing from the exchange may depend on headers: runs then have to agree in them."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            return False
        return exchange.alternate is not None or exchange.onward > 0 or not exchange.by_key

    def route(self, run: Run) -> list[AnyQueue]:
        """Returns the queues that a run goes to, each once."""
        if run.copies or run.hidden_copies:
            return self.route_by(run.keys, run)
        found = self.routes.get((run.exchange, run.key))
        if found is not None:
            return found
        found, by_key = self._walk(run.exchange, (run.key,), run)
        if by_key:
            if len(self.routes) >= _REMEMBERED:
                self.routes = {}
            self.routes[run.exchange, run.key] = found
        return found

    def route_by(self, keys: tuple[bytes, ...], run: Run) -> list[AnyQueue]:
        """As `route`, by some of the run's keys."""
        return self._walk(run.exchange, keys, run)[0]

    def _walk(self, name: bytes, keys: tuple[bytes, ...], run: Run) -> tuple[list[AnyQueue], bool]:
        """Returns (queues, whether only keys decided)."""
        if name == DEFAULT:
            return self._named([Destination(key, False) for key in keys]), True
        reached: dict[Destination, None] = {}
        seen = {name}
        todo = [name]
        by_key = True
        while todo:
            exchange = self.exchanges.get(todo.pop())
            if exchange is None:
                continue
            by_key = by_key and exchange.by_key
            found = [
                destination
                for key in keys
                for destination in exchange.match(key, run, self.reader, self.schemas)
            ]
            if exchange.type is ExchangeType.LOCAL_RANDOM:
                found = exchange.turn([one for one in found if self._is_here(one)])
            elif exchange.type is ExchangeType.MODULUS_HASH:
                found = found[:1]
            if not found and exchange.alternate is not None:
                found = [Destination(exchange.alternate, True)]
            for destination in found:
                if not destination.is_exchange:
                    reached[destination] = None
                elif destination.name not in seen:
                    seen.add(destination.name)
                    todo.append(destination.name)
        return self._named(list(reached)), by_key

    def _is_here(self, destination: Destination) -> bool:
        """Whether a queue is one of this host's own."""
        queue = self.queues.get(destination.name)
        return queue is not None and not queue.home

    def _named(self, destinations: list[Destination]) -> list[AnyQueue]:
        found = dict.fromkeys(destinations)
        return [self.queues[one.name] for one in found if one.name in self.queues]


def by_content(exchanges: Mapping[bytes, Exchange], name: bytes) -> bool:
    """Whether routing from the exchange may meet a binding with a filter: messages are then routed one by
    one."""
    seen, todo = {name}, [name]
    while todo:
        exchange = exchanges.get(todo.pop())
        if exchange is None:
            continue
        if exchange.by_content:
            return True
        onward: set[bytes] = set() if exchange.alternate is None else {exchange.alternate}
        if exchange.onward:
            onward |= {one.destination.name for one in exchange.bindings if one.destination.is_exchange}
        todo += onward - seen
        seen |= onward
    return False
