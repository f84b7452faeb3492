"""A blocking connection with a few requests in flight, which survives the loss of its peer.

Unanswered requests are sent again, in order, over a new connection: batches of idempotent producers are
appended once however often they arrive, as long as a broker remembers them, which is five per producer and
partition.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import LoadError

from ..errors import WriteError
from ..links import LINKS, Link
from ..servers import Servers
from .frames import parse_produce

ON_THE_WAY = 4  # requests; a broker remembers five batches of a producer
_PAUSE_S = 0.1
_DUPLICATE = 46
# Temporary errors of brokers: leaders move, a disk is full, or an earlier request must be repeated first.
_AGAIN = frozenset((3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 45, 51, 56, 74, 75))
_MEANING = {
    10: "a batch is larger than max.message.bytes of its topic: raise it, or write smaller values",
    44: "a policy of the cluster forbids it",
    47: "another attempt has taken over",
    48: "the transaction is no longer open: it was open for longer than stagingLeaseMs",
    49: "the transaction is no longer known: it was open for longer than stagingLeaseMs",
    50: "stagingLeaseMs is more than the broker's transaction.max.timeout.ms",
    87: "the broker refuses a record",
    90: "another attempt has taken over",
}


def meaning(error: int, said: str = "") -> str:
    return _MEANING.get(error, "it was refused") + f" (error {error}{': ' + said if said else ''})"


class Again(Exception):
    """The broker needs a moment, or another connection."""


class Lane:
    """To one of `servers`, and to another one if it fails. Raises WriteError if nothing is answered for
    `timeout` seconds.
    """

    def __init__(self, servers: Servers, timeout: float) -> None:
        self._servers = servers
        self._timeout = timeout
        self._link: Link | None = None
        self._unanswered: deque[bytes] = deque()
        self._deadline = 0.0

    def ask(self, frame: bytes, read: Callable[[bytes], int]) -> int:
        """Sends `frame` until `read` of its answer gives 0 or an error that stays."""
        self._moved()
        while True:
            try:
                error = read(self._connected().call(frame))
                if error not in _AGAIN:
                    return error
                self._wait(Again(f"error {error}"))
            except (OSError, LoadError) as error:
                self._wait(error)

    def send(self, frame: bytes) -> None:
        """Sends a Produce request; waits while too many are in flight."""
        if not self._unanswered:
            self._moved()
        self._unanswered.append(frame)
        try:
            self._connected(resend=False).send(frame)
        except (OSError, LoadError) as error:
            self._wait(error)
        self.settle(ON_THE_WAY - 1)

    def settle(self, left: int = 0) -> None:
        """Returns when at most `left` requests are not answered."""
        while len(self._unanswered) > left:
            try:
                self._check(self._connected().receive())
            except (OSError, LoadError, Again) as error:
                self._wait(error)
            else:
                self._unanswered.popleft()
                self._moved()

    def _check(self, payload: bytes) -> None:
        for partition, (error, said) in parse_produce(payload).items():
            if error in _AGAIN:
                raise Again(f"{partition}: error {error} {said}")
            if error not in (0, _DUPLICATE):
                raise WriteError(f"{partition} at {self._servers}: {meaning(error, said)}")

    def _connected(self, *, resend: bool = True) -> Connection:
        """Returns a connection; a new one first sends unanswered requests (without `resend`, all but the
        last).
        """
        if self._link is None:
            link = LINKS.take_any(self._servers, self._timeout)
            waiting = list(self._unanswered)
            for frame in waiting if resend else waiting[:-1]:
                link.connection.send(frame)
            self._link = link
        return self._link.connection

    def _moved(self) -> None:
        self._deadline = time.monotonic() + self._timeout

    def _wait(self, error: Exception) -> None:
        """Prepares the next attempt, over another connection."""
        self._drop()
        if time.monotonic() > self._deadline:
            raise WriteError(
                f"{self._servers} has not taken what is written for {self._timeout:g} s: {error}"
            ) from error
        time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Keeps the link for the next task if everything is answered."""
        if self._link is not None:
            LINKS.give(self._link)
            self._link = None

    def _drop(self) -> None:
        if self._link is not None:
            LINKS.failed(self._link.address)
            self._link.close()
            self._link = None
