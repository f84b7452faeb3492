"""The log of changes in front of the durable tables: what a turn changes is one block at its end.

  block     msgpack: [number, [[table, key, value or nil], ...]]

Numbers rise by one from block to block. The database holds the number of the last block whose changes it has
(`folded`). Replaying a block again changes nothing, and blocks up to `folded` are skipped: a log that comes
back old, or twice, takes nothing back. A log that begins later than the database ends has a gap, and is
refused: one of the two comes from another copy. A gap behind a segment that was not forced to the disk is
the work of a power loss, and ends the log.

`recent` holds the last value of each key since the last fold. A fold hands these to the database; only then
the segments that they came from are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treecast.middleware.model.errors import Fault, TreecastError

from .block_log import BlockLog, BlockSegment, Gap, SyncTicket
from .disk import Disk, refused


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Sets `key` of `table` to `value`, or removes it if `value` is None."""

    table: str
    key: str
    value: bytes | None


Key = tuple[str, str]  # table, key

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[Change]]).decode


class TableLog:
    """The log in `directory`, opened over a database that has all blocks up to `folded`.

    `syncs`: whether the owner forces it to the disk. Raises STORAGE if the disk refuses, or for a gap.
    """

    def __init__(self, directory: str, disk: Disk, *, syncs: bool, folded: int) -> None:
        self.number = folded  # of the last block
        self.recent: dict[Key, bytes | None] = {}
        self.folding: dict[Key, bytes | None] = {}  # handed out by `begin_fold`
        self._directory = directory
        self._old: list[BlockSegment] = []  # the segments that the present fold makes superfluous
        self._log = BlockLog.open(directory, disk, syncs, self._take)

    def _take(self, segment: BlockSegment, body: bytes) -> None:
        try:
            number, changes = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TreecastError(
                Fault.STORAGE,
                f"{self._directory} holds a block that cannot be read ({error}): run the Treecast release"
                " that wrote it",
            ) from error
        if number <= self.number:
            return
        if number != self.number + 1:
            unlike = TreecastError(
                Fault.STORAGE,
                f"{self._directory} begins with change {number}, but the tables end with change"
                f" {self.number}: restore both from one copy, or remove the folder to continue with the"
                " tables alone",
            )
            raise Gap(unlike)
        self._note(number, changes)

    def _note(self, number: int, changes: Sequence[Change]) -> None:
        self.number = number
        recent = self.recent
        for change in changes:
            recent[change.table, change.key] = change.value

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._log.size

    @property
    def failed(self) -> bool:
        """Whether the last sync has failed."""
        return self._log.failed

    def append(self, changes: Sequence[Change]) -> None:
        """Writes `changes` as one block. Raises STORAGE if the disk refuses; nothing is then changed.

        A sync that fails later changes nothing here: the block stays, and so do its changes.
        """
        number = self.number + 1
        self._log.append(_encode((number, changes)))
        self._note(number, changes)

    def begin_sync(self) -> SyncTicket:
        """Returns a ticket for a sync of everything written so far. Raises STORAGE."""
        try:
            return self._log.begin_sync()
        except OSError as error:
            raise refused(error, f"write {self._directory}") from error

    # --- folding

    def begin_fold(self) -> tuple[int, list[Change]]:
        """Returns the changes since the last fold, and the number of the last block with them. Later blocks
        go to a new segment, or to the last one if that is empty. Call `end_fold` afterwards. Raises STORAGE,
        and has then done nothing.
        """
        assert not self._old
        try:
            if self._log.segments[-1].size:
                self._log.roll()
        except OSError as error:
            raise refused(error, f"write {self._directory}") from error
        self._old = self._log.segments[:-1]
        self.folding, self.recent = self.recent, {}
        return self.number, [Change(table, key, value) for (table, key), value in self.folding.items()]

    def end_fold(self, *, stored: bool) -> None:
        """`stored`: the database has the changes, on disk, and their blocks are dropped."""
        if stored:
            for _ in self._old:
                self._log.drop_first()
        else:
            self.recent = self.folding | self.recent
        self._old = []
        self.folding = {}

    def overlay(self, table: str, rows: dict[str, bytes]) -> None:
        """Brings the rows of a table in the database up to date."""
        for changes in (self.folding, self.recent):
            for (name, key), value in changes.items():
                if name != table:
                    continue
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value

    def close(self) -> None:
        self._log.close()
