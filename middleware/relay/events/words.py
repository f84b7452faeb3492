"""Reports of this host to origins about event streams that it no longer receives.

An origin that was killed asks in its next run, because it has lost what it had not stored (`earlier`). The
answer tells how each of its streams ended here. The first answer in a run of the origin is repeated in that
run: later, more of the messages that it sends again have been taken, which must not count for the older
stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from treecast.middleware.fabric.origin import JoinedStream
from treecast.middleware.wire.segment_bodies import Mode, Report

from .batches import Lineage
from .ports import EventEnded

_MOST = 256  # streams per host


class Words:
    """The reports by host. `passed`: the highest number taken, or these by (host, epoch, stream)."""

    def __init__(self) -> None:
        self._ended: dict[int, dict[Lineage, EventEnded]] = {}
        self._said: dict[int, tuple[int, list[EventEnded]]] = {}  # host -> (epoch, first answer in it)

    def ended(self, host: int, joined: JoinedStream, brought: int, passed: int) -> None:
        """Notes the end of a received stream. `brought`: the highest message number that it brought."""
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
        """Returns the reports on all streams of `host` before `epoch`, which must have been left."""
        said = self._said.get(host)
        if said is None or said[0] != epoch:
            ended = {line: one for line, one in self._ended.get(host, {}).items() if line[0] < epoch}
            for (origin, of, number), highest in passed.items():
                if origin == host and of < epoch and (of, number) not in ended:
                    ended[of, number] = EventEnded(epoch=of, stream=number, passed=highest)
            said = self._said[host] = (epoch, list(ended.values()))
        return said[1]

    def forget(self, host: int) -> None:
        """Forgets a host that has left the cluster."""
        self._ended.pop(host, None)
        self._said.pop(host, None)
