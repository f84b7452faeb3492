"""Dead-lettering: the death records of messages that queues gave up, and the detection of cycles.

The rules are RabbitMQ's (its page "Dead Letter Exchanges"; version 4 no longer trusts death records from
clients): one record for each queue and reason, the latest first, with a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"


class Death:
    """The deaths in one queue for one reason. `time`: that of the first, in seconds since the Unix epoch.

    `keys`: the message's routing keys at that time, without hidden ones. `expiration`: the publisher's,
    -1: none. `first`: this was the first of all deaths.
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
        """Returns the record with its count raised by one."""
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
    """Returns `deaths` with one more death. If the queue and reason have a record already, it is counted
    there."""
    death.first = not deaths
    for number, known in enumerate(deaths):
        if known.queue == death.queue and known.reason == death.reason:
            return (known.again(), *deaths[:number], *deaths[number + 1 :])
    return (death, *deaths)


def cycles(deaths: Sequence[Death], queue: bytes) -> bool:
    """Whether the message died in `queue` before and comes back without a rejection on the way.

    The latest death may be one of several in its queue: as in RabbitMQ, deaths are examined from the latest
    to the first that was in `queue`.
    """
    for death in deaths:
        if death.reason == REJECTED:
            return False
        if death.queue == queue:
            return True
    return False
