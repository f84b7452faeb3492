"""Connections that a Python worker keeps for its next task, with what a cluster has said over them.

Spark uses its Python workers again, one task after the other: what a task has asked, the task of the next
batch need not ask. What is known came over a connection and goes with it: once it has ended, another daemon
may answer at that address.
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

IDLE_S: Final = 60.0  # what was idle for longer is not used again: who knows what is between
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
        """Returns what the cluster calls itself."""
        if self._cluster_id is None:
            self._cluster_id = self.metadata([]).cluster_id
        return self._cluster_id

    def metadata(self, topics: list[str] | None) -> ClusterView:
        """Asked now. Brokers older than Kafka 3.0 do not tell the ids of topics."""
        if self._tells_ids is None:
            _, newest = self.connection.api_versions().get(metadata.KEY, (0, 0))
            self._tells_ids = newest >= metadata.VERSION
        if self._tells_ids:
            return metadata.parse(self.connection.call(metadata.request(topics)))
        return self.connection.metadata(topics)

    def view(self, topic: str, *, topic_id: str = "") -> ClusterView:
        """Of one topic. Remembered where one broker leads all partitions, as daemons say of themselves: what
        can change then are partitions that are added, and the whole topic, which may be made anew. So it is
        asked again where the topic is to be another one than is remembered."""
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

    def take(self, address: Address, timeout: float) -> Link:
        """Returns the one that was used last, or a new one. `timeout` in seconds, for each call."""
        now = time.monotonic()
        for link in [link for link in reversed(self._idle) if link.address == address]:
            self._idle.remove(link)
            if now - link.since < IDLE_S and link.connection.quiet:
                link.connection.timeout(timeout)
                return link
            link.close()
        return Link(address, timeout)

    def give(self, link: Link) -> None:
        """Back; one that still waits for answers is closed."""
        if not link.connection.quiet:
            link.close()
            return
        link.since = time.monotonic()
        self._idle.append(link)
        if len(self._idle) > MOST:
            self._idle.pop(0).close()

    @contextmanager
    def lent(self, address: Address, timeout: float) -> Iterator[Link]:
        """Taken, and given back; closed where something fails."""
        link = self.take(address, timeout)
        try:
            yield link
        except BaseException:
            link.close()
            raise
        self.give(link)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


LINKS: Final = Links()  # of this process: a Python worker has one task at a time


def cluster_id_of(address: Address, timeout: float = 5) -> str:
    """Returns what the cluster at an address calls itself; empty if nobody answers."""
    try:
        with LINKS.lent(address, timeout) as link:
            return link.cluster_id()
    except (OSError, LoadError):
        return ""


def nearest(given: Address, cluster_id: str, local: Address) -> Address:
    """`local`, if the daemon there belongs to the cluster; else `given`."""
    if local == given or not cluster_id:
        return given
    return local if cluster_id_of(local, 1) == cluster_id else given
