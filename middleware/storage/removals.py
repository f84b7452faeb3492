"""Files that are removed beside the event loop, in order.

With the mount option `discard`, a disk may take 30 ms to remove a file of 16 MiB. The removal of a long queue
would stop the daemon for as long as its hundreds of files take.
"""

from __future__ import annotations

import threading
from collections import deque

from treecast.middleware.model.logs import Log

from .disk import Disk

_log = Log(__name__)


class Removals:
    """The files to remove. A thread works while there are any.

    No file is removed before those that were added earlier: it may hold the entries that settle what they
    have. A file that the disk does not remove is tried again with the next one, or when its log is opened
    again.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: deque[str] = deque()
        self._lock = threading.Lock()  # held where `_worker` and the paths are looked at together
        self._worker: threading.Thread | None = None

    def add(self, path: str) -> None:
        with self._lock:
            self._paths.append(path)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="removals", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._paths:
                    self._worker = None
                    return
                path = self._paths[0]
            try:
                self._disk.unlink(path)
            except OSError as error:
                _log.warning("file is not removed", path=path, error=error)
                with self._lock:
                    self._worker = None
                return
            with self._lock:
                self._paths.popleft()

    def finish(self) -> None:
        """Returns when all are removed, or the disk has refused one."""
        worker = self._worker
        if worker is not None:
            worker.join()
