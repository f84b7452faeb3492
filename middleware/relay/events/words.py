"""What this host can say of event streams that it receives no more, to who sent them.

An origin that was killed asks anew, in its next run, and has forgotten what it had not kept (`earlier`). It
is told how each of its streams ended here. What was said first in a run of the origin is said again in that
run: by then more may have been taken of what it sends again, and that does not count for the older stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from treecast.middleware.fabric.origin import JoinedStream
from treecast.middleware.wire.segment_bodies import Mode, Report

from .batches import Lineage
from .ports import EventEnded

_MOST = 256  # streams of a host


class Words:
    """By host. `passed` is the highest number that was taken, or that of each (host, epoch, stream)."""

    def __init__(self) -> None:
        self._ended: dict[int, dict[Lineage, EventEnded]] = {}
        self._said: dict[int, tuple[int, list[EventEnded]]] = {}  # host -> the epoch, and what was said

    def ended(self, host: int, joined: JoinedStream, brought: int, passed: int) -> None:
        """A stream is received no more. `brought`: the highest number of a message that came by it."""
        _, number, epoch = joined.key
        progress = joined.progress
        report = Report(Mode.LIVE, progress.first, progress.next, totals=progress.totals)
        known = self._ended.setdefault(host, {})
        known[epoch, number] = EventEnded(
            epoch=epoch,
            stream=number,
            passed=passed,
            report=report.encode(),
            known=joined.next + joined.lag,
            number=brought,
        )
        if len(known) > _MOST:
            del known[next(iter(known))]

    def say(self, host: int, epoch: int, passed: Mapping[tuple[int, int, int], int]) -> list[EventEnded]:
        """Of all streams of `host` before `epoch`. Those that are received still have to be left before."""
        said = self._said.get(host)
        if said is None or said[0] != epoch:
            ended = {line: one for line, one in self._ended.get(host, {}).items() if line[0] < epoch}
            for (origin, of, number), highest in passed.items():
                if origin == host and of < epoch and (of, number) not in ended:
                    ended[of, number] = EventEnded(epoch=of, stream=number, passed=highest)
            said = self._said[host] = (epoch, list(ended.values()))
        return said[1]

    def forget(self, host: int) -> None:
        """It is not in the cluster any more."""
        self._ended.pop(host, None)
        self._said.pop(host, None)
