"""The directories of partitions: their names, their owners, and their removal.

`partition.metadata` in each directory holds its topic's id, in Kafka's format. A directory without that file
predates it, and belongs to the topic that its name says.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.durability import OWNER_FILE

_log = Log(__name__)


class PartitionDirectories:
    """All partition directories under one directory. Disk errors are raised as STORAGE."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = str(directory)
        self._renamed = False  # since the directory was forced to the disk
        self._removals: set[asyncio.Future[None]] = set()

    def path(self, topic: str, index: int) -> str:
        return f"{self._root}/{topic}-{index}"

    def exists(self, topic: str, index: int) -> bool:
        return os.path.exists(self.path(topic, index))

    # --- owners

    def claim(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Records the owner of a newly made directory."""
        path = Path(self.path(topic, index), OWNER_FILE)
        coded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
        try:
            path.write_text(f"version: 0\ntopic_id: {coded}\n")
        except OSError as error:
            raise _refused(f"write {path}", error) from error

    def owner(self, topic: str, index: int) -> TopicId | None:
        """Returns the id of the directory's topic, or None if there is no directory or it holds no id."""
        try:
            lines = Path(self.path(topic, index), OWNER_FILE).read_text().splitlines()
            coded = next(line.removeprefix("topic_id: ") for line in lines if line.startswith("topic_id: "))
            return uuid.UUID(bytes=base64.urlsafe_b64decode(coded + "=="))
        except (OSError, StopIteration, ValueError):
            return None

    def put_strangers_aside(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Renames the directory if it belongs to another topic of the same name."""
        owner = self.owner(topic, index)
        if owner is not None and owner != topic_id:
            self.put_aside(topic, topic_id, index, "stray")

    # --- removal

    def put_aside(self, topic: str, topic_id: TopicId, index: int, why: str) -> Path | None:
        """Renames the directory. Returns its new path, or None if there was none."""
        path = self.path(topic, index)
        aside = self._directory / f"{topic_id.hex}.{index}-{why}"
        try:
            os.rename(path, aside)
            self._renamed = True
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(f"rename {path}", error) from error
        if why == "stray":
            _log.warning("directory of no known topic was renamed", path=path, name=aside.name)
        return aside

    def discard(self, topic: str, topic_id: TopicId, indexes: Iterable[int]) -> None:
        """Renames the directories, which frees their names at once, and removes them on a thread.

        Tries all of them, then raises the first error.
        """
        moved: list[Path] = []
        first: TreecastError | None = None
        for index in indexes:
            try:
                aside = self.put_aside(topic, topic_id, index, "delete")
            except TreecastError as error:
                first = first or error
            else:
                moved += [aside] if aside is not None else []
        self._remove_trees(moved)
        if first is not None:
            raise first

    def sweep(self) -> None:
        """Removes the directories whose removal is pending."""
        self._remove_trees(list(self._directory.glob("*-delete")))

    async def settle(self) -> None:
        """Waits for the running removals, and forces all renaming to the disk."""
        await asyncio.gather(*self._removals)
        if self._renamed:
            self._renamed = False
            await asyncio.get_running_loop().run_in_executor(None, Disk().sync_directory, self._root)

    def _remove_trees(self, paths: list[Path]) -> None:
        if paths:
            removal = asyncio.get_running_loop().run_in_executor(None, _remove_all, paths)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)  # the rest is removed at the next start


def _refused(what: str, error: OSError) -> TreecastError:
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")
