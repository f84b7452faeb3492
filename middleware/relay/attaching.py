"""How a host, with or without a broker, identifies itself to the coordinator; and its run number."""

from __future__ import annotations

import time

import treecast
from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import RUN
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
    mtu: int = 0,
) -> pb.AttachRequest:
    """Returns the attach request of this host.

    `announced`: the address at which others reach the fabric; `mtu`: the longest packets that it sends and
    takes there.
    """
    return pb.AttachRequest(
        name=membership.name,
        instance=membership.instance,
        address=str(announced),
        version=treecast.__version__,
        run=directory.run,
        clock_run=run_by_clock(time.time()),
        leads_nothing=leads_nothing,
        zone=zone,
        mtu=mtu,
        runs=map(RUN.write, directory.runs),
    )


def take_run(attachment: Attachment, directory: DataDirectory, answer: pb.AttachResponse) -> None:
    """Raises the directory's run number to the one that the coordinator answered, if that is higher.

    Earlier runs of this host name in other directories, or in later states of this one, may have had higher
    numbers, which other hosts remember. Called after each attach: a host that started without the
    coordinator, or with one as old as itself, learns then what its directory is.
    """
    if answer.run > directory.run:
        _log.error(
            "data directory is another one, or an older state of it",
            path=directory.path,
            host=attachment.request.name,
            run=answer.run,
            partitions="are taken from the copies of other hosts",
            lost="what only its queues and sessions had since; nobody knows how much",
        )
        directory.raise_run(answer.run)
    attachment.request.run = directory.run  # sent with each attach


def count_by_clock(directory: DataDirectory) -> None:
    """Raises the run number of a host that was attached before to one by the clock. Called at each start.

    Other hosts refuse a run below one that they know, and take messages under it for earlier ones. The
    coordinator's word is not enough against a directory that is an older state: it may be as old itself, from
    the same backup, or not answer.
    """
    directory.raise_run(run_by_clock(time.time()))


def run_by_clock(now: float) -> int:
    """Returns a run number for a new directory, higher than any directory reaches by counting its runs.

    The number is `now` (Unix time) in seconds since 2026, at most half the largest leader epoch: even if the
    clock is far ahead, run numbers can still be incremented.
    """
    return min(max(int(now) - _BEGINNING, 0), 2**30)
