"""Quotas: bytes and requests per second of a user, of a client id, or of both, as in Kafka; and new
connections per second of an address. Pure.

A quota names a user, a client id, or both; `*` is the default for all others. All connections that a quota is
for share one bucket: with a quota of a user all of the user's, with a default one bucket for each name. The
first of these that gives a rate decides, for each rate by itself:

    user and client id, user and *, user, * and client id, * and *, *, client id, * of client ids

A quota of an address counts the connections of another machine, before anybody knows whose they are: those
above it are turned away. `*` is each address without a quota of its own. This machine's are not counted.

Source: Apache Kafka's DefaultQuotaCallback (KIP-13, KIP-55), whose order this is, and KIP-612.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.model.quota_bucket import QuotaBucket

ANY: Final = "*"
_MOST: Final = 10_000  # buckets; a full table is cleared


class Rate(enum.Enum):
    """The quantities that are counted in a second."""

    PRODUCE = "produce-bytes"  # that clients send: requests of Kafka's Produce, all of MQTT and AMQP
    FETCH = "fetch-bytes"  # that clients get: answers of Kafka's Fetch, all of MQTT and AMQP
    REQUESTS = "requests"  # of Kafka
    CONNECTIONS = "connections"  # new ones of an address


class Quota(Struct, frozen=True):
    """One quota. `user` or `client_id` "": whichever; ANY: those that have no quota of their own. `address`:
    of another machine, or ANY; then user and client id are "", and CONNECTIONS is the one rate.
    """

    user: str
    client_id: str
    rates: Mapping[Rate, float]
    address: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Its user, client or address: of each there is one quota."""
        return self.user, self.client_id, self.address


Place = tuple[str, str]


def check_quota(quota: Quota) -> None:
    """Raises ValueError, whose text says what is wrong."""
    of_address = bool(quota.address)
    if of_address == bool(quota.user or quota.client_id):
        raise ValueError("it names a user, a client-id, or both; or else an address")
    allowed = [rate for rate in Rate if (rate is Rate.CONNECTIONS) is of_address]
    known = ", ".join([rate.value for rate in allowed])
    sound = all(0 < one < math.inf for one in quota.rates.values())
    if not quota.rates or not sound or not quota.rates.keys() <= set(allowed):
        raise ValueError(f"give {known}, each above 0" if not of_address else f"give {known}, above 0")


def places(user: str, client_id: str) -> tuple[Place, ...]:
    """Returns where the quota of a connection may be, the first that counts first."""
    return (
        *((user, client_id), (user, ANY), (user, "")),
        *((ANY, client_id), (ANY, ANY), (ANY, "")),
        *(("", client_id), ("", ANY)),
    )


class Spending:
    """The buckets of one connection. `version`: of the quotas that it was made by."""

    def __init__(self, buckets: Mapping[Rate, QuotaBucket], version: int) -> None:
        self.version = version
        self._produce = buckets.get(Rate.PRODUCE)
        self._fetch = buckets.get(Rate.FETCH)
        self._requests = buckets.get(Rate.REQUESTS)

    def request(self, produced: int, now: float) -> float:
        """Counts a request with `produced` bytes of records. Returns the seconds to wait after it."""
        wait = self._requests.take(1.0, now) if self._requests is not None else 0.0
        if self._produce is not None and produced:
            wait = max(wait, self._produce.take(produced, now))
        return wait

    def sent(self, size: int, now: float) -> float:
        """Counts bytes that a client has sent, in whatever form."""
        return self._produce.take(size, now) if self._produce is not None else 0.0

    def at_once(self, most: int) -> int:
        """Returns how many bytes a client may be sent in one go, up to `most`: a second's worth."""
        return min(most, max(int(self._fetch.rate), 1)) if self._fetch is not None else most

    def fetched(self, size: int, now: float) -> float:
        """Counts bytes that a client is sent."""
        return self._fetch.take(size, now) if self._fetch is not None else 0.0


class Quotas:
    """The quotas of a host. `version` rises with each change."""

    def __init__(self, quotas: Iterable[Quota] = ()) -> None:
        self.version = 0
        self.any = False
        self._rates: dict[Place, Mapping[Rate, float]] = {}
        self._connections: dict[str, float] = {}  # by address
        self._buckets: dict[tuple[Rate, str, str], QuotaBucket] = {}
        self._callers: dict[str, QuotaBucket] = {}  # by address
        self._take(quotas)

    def replace(self, quotas: Iterable[Quota]) -> None:
        self.version += 1
        self._take(quotas)

    def _take(self, quotas: Iterable[Quota]) -> None:
        given = list(quotas)
        self._rates = {(one.user, one.client_id): one.rates for one in given if not one.address}
        self._connections = {one.address: one.rates[Rate.CONNECTIONS] for one in given if one.address}
        self.any = bool(self._rates)
        self._buckets.clear()
        self._callers.clear()

    def may_connect(self, address: str, now: float) -> bool:
        """Counts a new connection of another machine. Returns whether it is within the quota."""
        rate = self._connections.get(address) or self._connections.get(ANY)
        if rate is None:
            return True
        found = self._callers.get(address)
        if found is None:
            if len(self._callers) >= _MOST:
                self._callers.clear()
            found = self._callers[address] = QuotaBucket(rate, now)
        return found.take_if_there(1.0, now)

    def spending(self, user: str, client_id: str, now: float) -> Spending:
        """Returns the buckets of a connection; connections of the same quota share them."""
        found = {}
        for rate in Rate:
            bucket = self._bucket(rate, user, client_id, now)
            if bucket is not None:
                found[rate] = bucket
        return Spending(found, self.version)

    def _bucket(self, rate: Rate, user: str, client_id: str, now: float) -> QuotaBucket | None:
        for place in places(user, client_id):
            per_second = self._rates.get(place, {}).get(rate)
            if per_second is None:
                continue
            key = (rate, user if place[0] else "", client_id if place[1] else "")
            found = self._buckets.get(key)
            if found is None:
                if len(self._buckets) >= _MOST:
                    self._buckets.clear()
                found = self._buckets[key] = QuotaBucket(per_second, now)
            return found
        return None


class Allowance:
    """The buckets of one connection. They are looked up again when quotas or its names change."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._spending: Spending | None = None
        self._user = self._client_id = ""

    def of(self, user: str, client_id: str, now: float) -> Spending:
        found = self._spending
        known = found is not None and found.version == self.quotas.version
        if found is None or not known or user != self._user or client_id != self._client_id:
            self._user, self._client_id = user, client_id
            found = self._spending = self.quotas.spending(user, client_id, now)
        return found
