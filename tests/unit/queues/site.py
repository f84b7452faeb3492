"""A virtual host on a disk, for tests of what a kill leaves."""

from __future__ import annotations

from pathlib import Path

from tests.unit.queues.host import bodies_of, run

from treecast.middleware.broker.queues import MessageQueue, QueueSettings, VirtualHost
from treecast.middleware.broker.queues.restoring import QueueStorage
from treecast.middleware.storage.disk import Disk

SMALL = 2048  # bytes of a segment


class Site:
    """A virtual host on a disk. `kill` opens it again from the last write."""

    def __init__(
        self, path: Path, disk: Disk | None = None, *, segment_bytes: int = SMALL, syncs: bool = False
    ):
        self.path = path
        self.now = 100.0
        self._disk = disk or Disk()
        self._segment_bytes = segment_bytes
        self._syncs = syncs
        self._open()

    def _open(self) -> None:
        storage = QueueStorage(
            str(self.path), self._disk, offset=1e9, syncs=self._syncs, segment_bytes=self._segment_bytes
        )
        self.store, self.journal = storage.store, storage.journal
        settings = QueueSettings(resident_bytes=300, page_entries=5)
        self.vhost = VirtualHost("/", self.store, self.journal.recorder("/"), settings)
        self.restored = storage.restore(lambda name: self.vhost, self.now)

    def kill(self) -> None:
        self.store.close()
        self._open()

    def queue(self, name: str = "q", **arguments: object) -> MessageQueue:
        asked = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.queue_definitions.declare(name.encode(), arguments=asked, now=self.now)

    def publish(self, *bodies: bytes, key: str = "q", exchange: str = "", persistent: bool = True) -> None:
        self.vhost.publish(run(*bodies, key=key, exchange=exchange, persistent=persistent), self.now)

    def held(self, name: str = "q") -> list[tuple[bytes, bool]]:
        """Returns (body, redelivered) of all ready messages, in order. These deliveries are not written."""
        found = []
        queue = self.vhost.queues[name.encode()]
        while (part := queue.get(self.now, no_ack=False)) is not None:
            found += [(body, part.redelivered) for body in bodies_of(part)]
        self.kill()
        return found
