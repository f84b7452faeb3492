"""A blocking connection for the calls around a load run: readiness, topic creation, end offsets."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping

from . import frames
from .frames import ClusterView, LoadError

TOPIC_ALREADY_EXISTS = 36
# Unknown topic, no leader, not the leader, timed out: possible answers right after a topic was created.
_NOT_YET = (3, 5, 6, 7)


class Connection:
    """One request at a time. Raises OSError as sockets do, LoadError for an invalid answer."""

    def __init__(self, host: str, port: int, timeout: float = 30) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unanswered = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def timeout(self, seconds: float) -> None:
        """Sets the limit of each later call."""
        self._socket.settimeout(seconds)

    @property
    def quiet(self) -> bool:
        """Whether it is open, and all that was sent is answered: it can be used for something else."""
        if self._unanswered:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def call(self, frame: bytes | bytearray) -> bytes:
        """Sends a frame; returns the response without its length."""
        self.send(frame)
        return self.receive()

    def send(self, frame: bytes | bytearray) -> None:
        self._unanswered += 1
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """Returns the next response without its length. `send` and `receive` apart keep more than one on the
        way.
        """
        answer = self._exactly(int.from_bytes(self._exactly(4), "big"))
        self._unanswered -= 1
        return answer

    def _exactly(self, count: int) -> bytes:
        chunks: list[bytes] = []
        while count > 0:
            data = self._socket.recv(min(count, 1 << 20))
            if not data:
                raise LoadError("the server closed the connection")
            chunks.append(data)
            count -= len(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def api_versions(self) -> dict[int, tuple[int, int]]:
        return frames.parse_api_versions(self.call(frames.api_versions_request()))

    def metadata(self, topics: list[str] | None = None) -> ClusterView:
        return frames.parse_metadata(self.call(frames.metadata_request(topics)))

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, wait: float = 30
    ) -> None:
        """Creates a topic unless it exists, and waits until every partition has a leader that confirms it."""
        payload = self.call(frames.create_topic_request(topic, partitions, configs))
        error, message = frames.parse_create_topics(payload)
        if error not in (0, TOPIC_ALREADY_EXISTS, *_NOT_YET):
            raise LoadError(f"cannot create topic {topic}: error {error} {message}")
        deadline = time.monotonic() + wait
        while error := self._missing(topic, partitions):
            if time.monotonic() > deadline:
                raise LoadError(f"topic {topic} has no leaders after {wait:g} s (error {error})", error)
            time.sleep(0.01)

    def _missing(self, topic: str, partitions: int) -> int:
        """Returns 0 once all partitions are usable, else the present error."""
        error, leaders = self.metadata([topic]).topics.get(topic, (3, {}))
        if error:
            return error
        if len(leaders) < partitions or any(node < 0 for node in leaders.values()):
            return 5
        try:
            for partition in range(partitions):
                self.offset(topic, partition)
        except LoadError as refused:
            if refused.code not in _NOT_YET:
                raise
            return refused.code
        return 0

    def offset(self, topic: str, partition: int, timestamp: int = frames.LATEST) -> int:
        return frames.parse_list_offsets(self.call(frames.list_offsets_request(topic, partition, timestamp)))


def serves(host: str, port: int, timeout: float = 1) -> bool:
    """Returns whether a Kafka broker answers ApiVersions and then names itself in Metadata."""
    try:
        with Connection(host, port, timeout) as connection:
            connection.api_versions()
            return bool(connection.metadata([]).brokers)
    except (OSError, LoadError):
        return False
