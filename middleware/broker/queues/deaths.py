"""Dead-lettering: what is remembered of a message that a queue gave up, and when it would go in circles.

The rules are RabbitMQ's (its page "Dead Letter Exchanges"; version 4 no longer believes what clients say of
deaths): one record for each queue and reason, the latest first, with a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"


class Death:
    """Deaths in one queue for one reason. `time`: the first, seconds since the Unix epoch.

    `keys` are those that it was routed by then, less hidden ones; `expiration` what the publisher had said,
    -1: nothing. `first`: it was the first of all deaths.
    """

    def __init__(
        self,
        queue: bytes,
        reason: str,
        exchange: bytes,
        keys: tuple[bytes, ...],
        time: int,
        expiration: int = -1,
        count: int = 1,
        first: bool = False,
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.exchange = exchange
        self.keys = keys
        self.time = time
        self.expiration = expiration
        self.count = count
        self.first = first

    def again(self) -> Death:
        """The same once more."""
        return Death(
            self.queue,
            self.reason,
            self.exchange,
            self.keys,
            self.time,
            self.expiration,
            self.count + 1,
            self.first,
        )


def died(deaths: Sequence[Death], death: Death) -> tuple[Death, ...]:
    """`deaths` and one more: of a queue and reason that are there already, it is counted."""
    death.first = not deaths
    for number, known in enumerate(deaths):
        if known.queue == death.queue and known.reason == death.reason:
            return (known.again(), *deaths[:number], *deaths[number + 1 :])
    return (death, *deaths)


def cycles(deaths: Sequence[Death], queue: bytes) -> bool:
    """Whether the message has been in `queue` and came back without anybody rejecting it on the way.

    The latest death may be one of several in its queue: deaths are looked at from the latest to the first
    that was in `queue`, as RabbitMQ does.
    """
    for death in deaths:
        if death.reason == REJECTED:
            return False
        if death.queue == queue:
            return True
    return False
