"""The directories of partitions: their names, whose they are, and how they go.

`partition.metadata` in each names its topic's id, in Kafka's format. A directory without one is of a time
before it was written, and is taken for what its name says.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId

_log = logging.getLogger(__name__)

_METADATA = "partition.metadata"


class PartitionDirectories:
    """All under one directory. What the disk refuses is raised as STORAGE."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = str(directory)
        self._removals: set[asyncio.Future[None]] = set()

    def path(self, topic: str, index: int) -> str:
        return f"{self._root}/{topic}-{index}"

    def exists(self, topic: str, index: int) -> bool:
        return os.path.exists(self.path(topic, index))

    # --- whose it is

    def claim(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Writes down whose a directory is that was just made."""
        path = Path(self.path(topic, index), _METADATA)
        coded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
        try:
            path.write_text(f"version: 0\ntopic_id: {coded}\n")
        except OSError as error:
            raise _refused(f"write {path}", error) from error

    def owner(self, topic: str, index: int) -> TopicId | None:
        """The id of the directory's topic; None where there is no directory, or it does not say."""
        try:
            lines = Path(self.path(topic, index), _METADATA).read_text().splitlines()
            coded = next(line.removeprefix("topic_id: ") for line in lines if line.startswith("topic_id: "))
            return uuid.UUID(bytes=base64.urlsafe_b64decode(coded + "=="))
        except (OSError, StopIteration, ValueError):
            return None

    def put_strangers_aside(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Makes room where the directory belongs to another topic of the same name."""
        owner = self.owner(topic, index)
        if owner is not None and owner != topic_id:
            self.put_aside(topic, topic_id, index, "stray")

    # --- going

    def put_aside(self, topic: str, topic_id: TopicId, index: int, why: str) -> Path | None:
        """Where the directory is now; None where there was none."""
        path = self.path(topic, index)
        aside = self._directory / f"{topic_id.hex}.{index}-{why}"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(f"rename {path}", error) from error
        if why == "stray":
            _log.warning("%s belonged to no topic and was renamed to %s", path, aside.name)
        return aside

    def discard(self, topic: str, topic_id: TopicId, indexes: Iterable[int]) -> None:
        """Renames, so that the name is free at once; the removal takes its time on a thread.

        The first refusal is raised when all were tried.
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
        """Removes what is on its way out."""
        self._remove_trees(list(self._directory.glob("*-delete")))

    async def settle(self) -> None:
        """Waits until nothing is being removed."""
        await asyncio.gather(*self._removals)

    def _remove_trees(self, paths: list[Path]) -> None:
        if paths:
            removal = asyncio.get_running_loop().run_in_executor(None, _remove_all, paths)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)  # what stays goes at the next start


def _refused(what: str, error: OSError) -> TreecastError:
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")
