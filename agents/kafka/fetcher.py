"""`BrokerFetcher`: fetches from one broker, for all partitions that it leads and that are followed.

One request is on its way at a time, on a connection of its own. What it may bring bounds the agent's memory:
records are appended to the copies, and handed to the fabric's streams, before more is asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

from treecast.middleware.api.lasting import BackOff
from treecast.middleware.broker.values import Isolation
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicId, TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.kafka_primitives import CodecError
from treecast.shims.kafka.codec_client import (
    Asked,
    Fetched,
    decode_fetch_response,
    encode_fetch_request,
    shared_version,
)
from treecast.shims.kafka.versions import FETCH

from .cluster import Pool
from .connection import ConnectionLost, KafkaConnection
from .fetch_session import FetchSession
from .session import CopySession
from .session_table import State

MAX_WAIT_MS: Final = 500
_SECONDS: Final = 30.0
_AGAIN: Final = 3

_log = Log(__name__)


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...


class FetchedPartition(Protocol):
    """A partition of a Kafka cluster that is read here. `end`: the offset to fetch next. `last_epoch`: the
    leader epoch of the record before it, -1 if unknown. `here`: whether answers still matter."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def topic(self) -> NamedTopic: ...

    @property
    def session(self) -> CopySession: ...

    @property
    def end(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    @property
    def here(self) -> bool: ...


P = TypeVar("P", bound=FetchedPartition)


class BrokerFetcher(Generic[P]):
    """In use from `run` to its cancellation. `led` yields the partitions that this broker leads."""

    def __init__(
        self,
        node: int,
        pool: Callable[[], Pool],
        led: Callable[[int], Iterable[P]],
        take: Callable[[P, Fetched], None],
        failed: Callable[[P, str], None],
        fetch_bytes: int,
        partition_bytes: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> None:
        """`take` is called with each answer, `failed` with the reason if there is none."""
        self.node = node
        self.requests = 0
        self.received = 0  # bytes of all answers
        self.trouble = ""
        self.connection: KafkaConnection | None = None
        self._pool = pool
        self._led = led
        self._take = take
        self._failed = failed
        self._fetch_bytes = fetch_bytes
        self._partition_bytes = partition_bytes
        self._isolation = isolation
        self._session = FetchSession()
        self._more = asyncio.Event()
        self._back_off = BackOff(random.Random())  # nosec B311  # pauses, no secrets
        self._turn = 0
        self._again = 0  # sessions that the broker has refused one after another

    def wake(self) -> None:
        """There may be more partitions to fetch."""
        self._more.set()

    async def run(self) -> None:
        try:
            while True:
                wanted = [one for one in self._led(self.node) if one.session.state is State.FETCHING]
                if not wanted:
                    self._more.clear()
                    await self._more.wait()
                    continue
                try:
                    await self._fetch(wanted)
                    self.trouble = ""
                    self._back_off.reset()
                except (ConnectionLost, CodecError, TreecastError, TimeoutError) as error:
                    self._lost(wanted, str(error) or "no answer in time")
                    await asyncio.sleep(self._back_off.pause())
        finally:
            self._drop()

    def _lost(self, wanted: list[P], reason: str) -> None:
        if reason != self.trouble:
            _log.warning("a broker cannot be fetched from", broker=self.node, error=reason)
        self.trouble = reason
        self._drop()
        for one in wanted:
            self._failed(one, f"broker {self.node}: {reason}")

    def _drop(self) -> None:
        if self.connection is not None:
            self.connection.abort()
            self.connection = None

    async def _fetch(self, wanted: list[P]) -> None:
        """Fetches once. A broker moves partitions that had records to the end of its session."""
        if self.connection is None or not self.connection.open:
            self.connection = await self._pool().connect()
            self._session.forget()
        connection = self.connection
        version = shared_version(FETCH, connection.versions)
        self._turn = (self._turn + 1) % len(wanted)
        order = wanted[self._turn :] + wanted[: self._turn]  # matters to a broker without room for a session
        named = self._session.next([self._asked(one) for one in order])
        async with asyncio.timeout(_SECONDS):
            frame = await connection.request(
                lambda number: [
                    encode_fetch_request(
                        number,
                        version,
                        connection.client_id,
                        named.asked,
                        max_wait_ms=MAX_WAIT_MS,
                        min_bytes=1,
                        max_bytes=self._fetch_bytes,
                        isolation=self._isolation,
                        session_id=named.session_id,
                        session_epoch=named.session_epoch,
                        forgotten=named.forgotten,
                    )
                ]
            )
        self.requests += 1
        self.received += len(frame)
        code, session_id, answers = decode_fetch_response(frame, version)
        if not self._session.answered(code, session_id) and self._again < _AGAIN:
            self._again += 1
            return
        self._again = 0
        if code:
            raise ConnectionLost(f"the broker refuses the fetch with error {code}")
        self._hand_out(order, answers)

    def _asked(self, one: P) -> Asked:
        return Asked(
            one.topic.name,
            one.topic.topic_id.bytes,
            one.name.partition,
            one.end,
            self._partition_bytes,
            leader_epoch=one.session.epoch,
            last_epoch=one.last_epoch,
        )

    def _hand_out(self, order: list[P], answers: list[Fetched]) -> None:
        by_place = {(one.topic.name, one.name.partition): one for one in order}
        by_id = {(one.topic.topic_id.bytes, one.name.partition): one for one in order}
        for answer in answers:
            found = by_id.get((answer.topic_id, answer.partition)) if answer.topic_id else None
            found = found or by_place.get((answer.topic, answer.partition))
            if found is not None and found.here:
                self._take(found, answer)
