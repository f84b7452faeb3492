"""The state of one other host: its address, its connection, its waiting calls."""

from __future__ import annotations

import asyncio
from random import Random

from treecast.middleware.api.discovery import Address

from .codec import NO_CONNECTION
from .link import Link
from .outgoing import CallQueue
from .settings import ChannelSettings
from .values import PeerStatus


class Peer:
    """A host of the cluster other than this one."""

    def __init__(self, host_id: int, settings: ChannelSettings) -> None:
        self.host_id = host_id
        self.address: Address | None = None
        self.link: Link | None = None  # the open connection
        self.queue = CallQueue()
        self.incarnation = 0  # the highest one seen
        self.last_connection = NO_CONNECTION
        self.calls = 0
        self.requests = 0
        self.last_error = ""
        self.advice = ""  # what to look at because of it
        self.refused = False  # the last connection was refused because of this host's identity
        self.dialling: asyncio.Task[None] | None = None
        self.retry: asyncio.TimerHandle | None = None
        self._settings = settings
        self._pause = settings.back_off_first

    def next_pause(self, rng: Random) -> float:
        """Returns the seconds before the next attempt: random, and longer each time."""
        pause = self._pause
        self._pause = min(pause * 2, self._settings.back_off_longest)
        # Spread, because all hosts lose a host that restarts at the same moment.
        return pause * (0.5 + rng.random() / 2)

    def reset_pause(self) -> None:
        self._pause = self._settings.back_off_first

    def stop_dialling(self) -> None:
        """Stops dialling and waiting to dial."""
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None
        if self.dialling is not None:
            self.dialling.cancel()
            self.dialling = None

    def status(self) -> PeerStatus:
        link, queue = self.link, self.queue
        return PeerStatus(
            self.host_id,
            str(self.address) if self.address is not None else "",
            link is not None,
            link is not None and link.dialled,
            self.incarnation,
            link.since if link is not None else 0.0,
            link.bytes_in if link is not None else 0,
            link.bytes_out if link is not None else 0,
            self.calls,
            self.requests,
            link.session.in_flight if link is not None else 0,
            queue.calls,
            queue.bytes,
            link.session.handling if link is not None else 0,
            link.session.round_trip if link is not None else 0.0,
            self.last_error,
            self.refused,
            self.advice,
        )
