"""The start of each leader epoch: `leader-epoch-checkpoint`, Kafka's text format (KIP-101).

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
        self.latest = self.entries[-1][0] if self.entries else -1  # the current epoch, or -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """Starts `epoch` at `start_offset`, and removes epochs that wrote nothing."""
        self.truncate_end(start_offset)
        if epoch > self.latest:
            self.entries.append((epoch, start_offset))
            self.latest = epoch

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Returns (largest epoch up to `epoch`, its end offset), or (-1, -1), as OffsetForLeaderEpoch
        asks.
        """
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
        """Adapts the epochs to a log that now starts at `offset`."""
        while len(self.entries) > 1 and self.entries[1][1] <= offset:
            del self.entries[0]
        if self.entries and self.entries[0][1] < offset:
            self.entries[0] = (self.entries[0][0], offset)

    def truncate_end(self, offset: int) -> None:
        """Adapts the epochs to a log that now ends at `offset`."""
        self.drop_beyond(offset - 1)

    def drop_beyond(self, end_offset: int) -> None:
        """Removes epochs that would start after the log's end. One that starts there stays: its leader may
        have written nothing yet.
        """
        while self.entries and self.entries[-1][1] > end_offset:
            self.entries.pop()
        self.latest = self.entries[-1][0] if self.entries else -1

    def encode(self) -> bytes:
        lines = ["0", str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        """Returns the epochs of a file; none if the file is not whole."""
        try:
            lines = data.decode().splitlines()
            version, count = int(lines[0]), int(lines[1])
            entries = [(int(line.split()[0]), int(line.split()[1])) for line in lines[2:]]
        except (ValueError, IndexError):
            return cls()
        if version != 0 or count != len(entries) or entries != sorted(set(entries)):
            return cls()
        return cls(entries)


def divergence(
    follower: list[tuple[int, int]], follower_end: int, leader: list[tuple[int, int]], leader_end: int
) -> int:
    """Returns the offset up to which a follower's log surely equals its leader's; `follower_end` if all of it
    does.

    Both logs are given by (epoch, start offset), oldest first, and their ends. Only one leader writes in an
    epoch, so two logs agree in it as far as both reach. Kafka's followers find this offset with repeated
    OffsetForLeaderEpoch calls (KIP-101, KIP-279); this takes one call. -1: they have no epoch in common.
    """
    known = {epoch: number for number, (epoch, _) in enumerate(leader)}
    end = follower_end
    for epoch, start in reversed(follower):
        number = known.get(epoch)
        if number is not None:
            last = number + 1 == len(leader)
            return min(end, leader_end if last else leader[number + 1][1])
        end = start
    return -1
