"""How a host, with or without a broker, identifies itself to the coordinator; and its run number."""

from __future__ import annotations

import time

import treecast
from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker import DataDirectory, Membership
from treecast.middleware.model.logs import Log

_BEGINNING = 1_767_225_600  # 2026-01-01, Unix time

_log = Log(__name__)


def attach_request(
    directory: DataDirectory,
    membership: Membership,
    announced: Address,
    *,
    leads_nothing: bool = False,
    zone: str = "",
) -> pb.AttachRequest:
    """Returns the attach request of this host. `announced`: the address at which others reach the fabric."""
    return pb.AttachRequest(
        name=membership.name,
        instance=membership.instance,
        address=str(announced),
        version=treecast.__version__,
        run=directory.run,
        clock_run=run_by_clock(time.time()),
        leads_nothing=leads_nothing,
        zone=zone,
    )


def take_run(attachment: Attachment, directory: DataDirectory) -> None:
    """Raises the directory's run number to the one that the coordinator answered, if that is higher.

    Earlier runs of this host name in other directories may have had higher numbers, which other hosts
    remember.
    """
    if attachment.answer is not None and attachment.answer.run > directory.run:
        _log.warning(
            "data directory is another one, or an older state of it",
            path=directory.path,
            host=attachment.request.name,
            run=attachment.answer.run,
        )
        directory.raise_run(attachment.answer.run)
    attachment.request.run = directory.run  # sent with each attach


def run_by_clock(now: float) -> int:
    """Returns a run number for a new directory, higher than any directory reaches by counting its runs.

    The number is `now` (Unix time) in seconds since 2026, at most half the largest leader epoch: even if the
    clock is far ahead, run numbers can still be incremented.
    """
    return min(max(int(now) - _BEGINNING, 0), 2**30)
