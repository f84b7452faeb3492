"""The summaries of a daemon's logs in one place: `summaries/` in the data directory, a `block_log`.

Each block, MessagePack:  [version, {name of the log's directory: LogSummary, ...}]

A later summary replaces an earlier one of the same log. A clean stop rewrites all of them and forces them to
the disk. While the daemon runs, it adds those of logs that have been idle for a while, so that a start after
a kill recovers only the logs that were written last. Summaries are an optimisation: a log without a valid one
is recovered from its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Final

import msgspec

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from .block_log import BlockLog, BlockSegment
from .disk import Disk
from .summary import LogSummary

_log = Log(__name__)

_VERSION: Final = 1
_BLOCK: Final = 256  # summaries in a block
_SPARE: Final = 4 << 20  # bytes beyond what is needed that trigger a rewrite

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(LogSummary).decode
_decode_block: Final = msgspec.msgpack.Decoder(tuple[int, dict[str, msgspec.Raw]]).decode


class LogSummaries:
    """The summaries of the logs under one directory. Create it with `open`; all calls come from the loop."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._blocks: BlockLog | None = None  # None: not open
        self._entries: dict[str, bytes] = {}
        self._fresh: dict[str, bytes] = {}  # not written yet
        self._bytes = 0  # written size of all entries

    @classmethod
    def open(cls, path: str, logs: str, disk: Disk | None = None) -> LogSummaries | None:
        """Returns the summaries in `path` of the logs in the directory `logs`, without damaged ones.

        Returns None, and logs it, if nothing can be stored there: logs then have checkpoints and no
        summaries.
        """
        made = cls(path, disk or Disk())
        made._blocks = made._opened()
        if made._blocks is None:
            return None
        present = set(os.listdir(logs)) if os.path.isdir(logs) else set()
        made._entries = {name: data for name, data in made._entries.items() if name in present}
        made._bytes = sum(map(len, made._entries.values()))
        return made

    def _opened(self) -> BlockLog | None:
        for _ in range(2):
            try:
                found = BlockLog.open(self._path, self._disk, True, self._take)
            except TreecastError as error:
                _log.warning(
                    "summaries of logs cannot be used; logs are recovered from their files", error=error
                )
                self._entries.clear()
                shutil.rmtree(self._path, ignore_errors=True)
                continue
            if found.cut:
                _log.warning("summaries of logs were damaged or torn", bytes=found.cut)
            return found
        return None

    def _take(self, segment: BlockSegment, block: bytes) -> None:
        try:
            version, entries = _decode_block(block)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if version == _VERSION:
            self._entries.update({name: bytes(raw) for name, raw in entries.items()})

    def __len__(self) -> int:
        return len(self._entries)

    # --- looking

    def trusted(self, directory: str) -> bytes | None:
        """Returns the encoded summary of a log if its files match; forgets any other."""
        name = os.path.basename(directory)
        data = self._entries.get(name)
        if data is None:
            return None
        try:
            if decoded(data).fits(directory):
                return data
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # written by another version
        self.forget(directory)
        return None

    # --- keeping

    def put(self, directory: str, summary: LogSummary) -> None:
        """Sets a log's summary; `write` or `save` writes it to disk."""
        name, data = os.path.basename(directory), _encode(summary)
        self.forget(directory)
        self._entries[name] = self._fresh[name] = data
        self._bytes += len(data)

    def forget(self, directory: str) -> None:
        """Removes a log's summary because the log is gone or differs from it."""
        name = os.path.basename(directory)
        self._fresh.pop(name, None)
        known = self._entries.pop(name, None)
        if known is not None:
            self._bytes -= len(known)

    def write(self) -> None:
        """Writes new summaries, or rewrites all if most of the file is obsolete.

        If the disk refuses, logs it; a start after a kill then recovers more logs.
        """
        blocks = self._blocks
        if blocks is None or not self._fresh:
            return
        fresh, self._fresh = self._fresh, {}
        try:
            if blocks.size > 2 * self._bytes + _SPARE:
                # without sync, as this runs on the loop; power loss may lose them
                self._anew(blocks, sync=False)
                return
            for block in _blocks_of(fresh):
                blocks.append(block)
        except (OSError, TreecastError) as error:
            _log.warning("summaries of logs cannot be written", error=error)

    def save(self) -> None:
        """Writes all summaries and forces them to the disk. If it refuses, logs it; the next start then
        recovers logs from their files.
        """
        blocks = self._blocks
        if blocks is None:
            return
        self._fresh.clear()
        try:
            self._anew(blocks, sync=True)
        except (OSError, TreecastError) as error:
            _log.warning("summaries of logs cannot be written", error=error)

    def _anew(self, blocks: BlockLog, *, sync: bool) -> None:
        """Rewrites all summaries. The old ones stay until the new ones are written."""
        blocks.roll()
        for block in _blocks_of(self._entries):
            blocks.append(block)
        if sync:
            blocks.begin_sync().run()
        while len(blocks.segments) > 1:
            blocks.drop_first()

    def close(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
            self._blocks = None


def decoded(data: bytes) -> LogSummary:
    """Raises msgspec.DecodeError for invalid data."""
    return _decode(data)


def _blocks_of(entries: dict[str, bytes]) -> Iterator[bytes]:
    names = list(entries)
    for first in range(0, len(names), _BLOCK):
        yield _encode(
            (_VERSION, {name: msgspec.Raw(entries[name]) for name in names[first : first + _BLOCK]})
        )
