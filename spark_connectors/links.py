"""Connections that a Python worker keeps for its next task, with the metadata received over them.

Spark reuses its Python workers for one task after the other: the task of the next batch need not repeat
requests. Cached metadata belongs to a connection: once that has ended, another daemon may answer at the
address.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from treecast.middleware.api.discovery import Address
from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import ClusterView, LoadError

from . import metadata
from .servers import Servers, one

CONNECT_S: Final = 3.0  # limit of a connection attempt if there are more servers to try
FAILED_S: Final = 60.0  # how long a server that failed is tried last
IDLE_S: Final = 60.0  # limit of idle time: longer idle connections may have been dropped on the way
MOST: Final = 8  # idle links; more are closed, the longest idle first


class Link:
    """A connection to one address. Raises OSError and LoadError as `Connection` has them."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self.connection = Connection(address.host, address.port, timeout)
        self.since = 0.0  # when it became idle
        self._tells_ids: bool | None = None  # whether Metadata has topic ids; None: not asked yet
        self._cluster_id: str | None = None
        self._views: dict[str, ClusterView] = {}

    def cluster_id(self) -> str:
        """Returns the cluster's id."""
        if self._cluster_id is None:
            self._cluster_id = self.metadata([]).cluster_id
        return self._cluster_id

    def metadata(self, topics: list[str] | None) -> ClusterView:
        """Requests metadata now. Brokers older than Kafka 3.0 do not return the ids of topics."""
        if self._tells_ids is None:
            _, newest = self.connection.api_versions().get(metadata.KEY, (0, 0))
            self._tells_ids = newest >= metadata.VERSION
        if self._tells_ids:
            return metadata.parse(self.connection.call(metadata.request(topics)))
        return self.connection.metadata(topics)

    def view(self, topic: str, *, topic_id: str = "") -> ClusterView:
        """Returns metadata of one topic. It is cached if one broker leads all partitions, as daemons report
        of themselves: then only added partitions and a recreated topic can change it. So it is requested
        again if the topic's id differs.
        """
        view = self._views.get(topic)
        if view is None or (topic_id and view.ids.get(topic) != topic_id):
            self._views.pop(topic, None)
            view = self.metadata([topic])
            error, leaders = view.topics.get(topic, (3, {}))
            if not error and len(view.brokers) == 1 and set(leaders.values()) == set(view.brokers):
                self._views[topic] = view
        return view

    def close(self) -> None:
        self.connection.close()


class Links:
    """Idle links of this process, for one thread at a time."""

    def __init__(self) -> None:
        self._idle: list[Link] = []
        self._failed: dict[Address, float] = {}  # when a server did not answer

    def take(self, address: Address, timeout: float) -> Link:
        """Returns the most recently used link, or a new one. `timeout` in seconds, for each call."""
        now = time.monotonic()
        for link in [link for link in reversed(self._idle) if link.address == address]:
            self._idle.remove(link)
            if now - link.since < IDLE_S and link.connection.quiet:
                link.connection.timeout(timeout)
                return link
            link.close()
        return Link(address, timeout)

    def take_any(self, servers: Servers, timeout: float) -> Link:
        """Returns a link to the first server that can be connected. Raises the last one's OSError."""
        last = len(servers) - 1
        for place, address in enumerate(self._ordered(servers)):
            try:
                link = self.take(address, min(timeout, CONNECT_S) if last else timeout)
            except OSError:
                self.failed(address)
                if place == last:
                    raise
            else:
                link.connection.timeout(timeout)
                return link
        raise AssertionError("there is at least one server")

    def _ordered(self, servers: Servers) -> list[Address]:
        """Returns the servers as given, but those that failed lately last, the longest ago first."""
        begun = time.monotonic() - FAILED_S
        return sorted(servers, key=lambda address: max(self._failed.get(address, begun), begun))

    def failed(self, address: Address) -> None:
        """Notes that a server did not answer: others are tried first for a while."""
        self._failed[address] = time.monotonic()

    def give(self, link: Link) -> None:
        """Returns a link for reuse; closes one that still waits for answers."""
        if not link.connection.quiet:
            link.close()
            return
        link.since = time.monotonic()
        self._idle.append(link)
        if len(self._idle) > MOST:
            self._idle.pop(0).close()

    @contextmanager
    def lent(self, address: Address, timeout: float) -> Iterator[Link]:
        """Yields a link and returns it; closes it on failure."""
        with self.lent_any(one(address), timeout) as link:
            yield link

    @contextmanager
    def lent_any(self, servers: Servers, timeout: float) -> Iterator[Link]:
        """Yields a link to one of the servers. If it fails, the next call tries another."""
        link = self.take_any(servers, timeout)
        try:
            yield link
        except BaseException as error:
            link.close()
            if isinstance(error, OSError | LoadError):
                self.failed(link.address)
            raise
        self.give(link)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


LINKS: Final = Links()  # of this process: a Python worker has one task at a time


def cluster_id_of(servers: Servers, timeout: float = 5) -> str:
    """Returns the id of the servers' cluster; empty if nobody answers."""
    for _ in servers:
        try:
            with LINKS.lent_any(servers, timeout) as link:
                return link.cluster_id()
        except (OSError, LoadError):
            pass
    return ""


def nearest(given: Servers, cluster_id: str, local: Address) -> Servers:
    """Returns `local` if the daemon there belongs to the cluster; else `given`."""
    near = one(local)
    if near == given or not cluster_id:
        return given
    return near if cluster_id_of(near, 1) == cluster_id else given
