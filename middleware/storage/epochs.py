"""Where each leader epoch began: `leader-epoch-checkpoint`, Kafka's text format (KIP-101).

0                     format version
<count>
<epoch> <start offset>    one line each, both growing
"""

from __future__ import annotations

from typing import Final

FILE_NAME: Final = "leader-epoch-checkpoint"


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []

    @property
    def latest(self) -> int:
        """The current epoch, or -1."""
        return self.entries[-1][0] if self.entries else -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`; epochs that wrote nothing are forgotten."""
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        if epoch > self.latest:
            self.entries.append((epoch, start_offset))

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, its end offset), or (-1, -1), as OffsetForLeaderEpoch asks."""
        if epoch < 0 or not self.entries or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        found, end = epoch, self.entries[0][1]
        for number, (entry, _) in enumerate(self.entries):
            if entry > epoch:
                break
            found, end = entry, self.entries[number + 1][1]
        return found, end

    def truncate_start(self, offset: int) -> None:
        """The log begins at `offset` now."""
        while len(self.entries) > 1 and self.entries[1][1] <= offset:
            del self.entries[0]
        if self.entries and self.entries[0][1] < offset:
            self.entries[0] = (self.entries[0][0], offset)

    def truncate_end(self, offset: int) -> None:
        """The log ends at `offset` now."""
        while self.entries and self.entries[-1][1] >= offset:
            self.entries.pop()

    def encode(self) -> bytes:
        lines = ["0", str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        """What can be read of a file: nothing, if it is not whole."""
        try:
            lines = data.decode().splitlines()
            version, count = int(lines[0]), int(lines[1])
            entries = [(int(line.split()[0]), int(line.split()[1])) for line in lines[2:]]
        except (ValueError, IndexError):
            return cls()
        if version != 0 or count != len(entries) or entries != sorted(set(entries)):
            return cls()
        return cls(entries)
