"""A client of one Kafka server that sends steps and remembers what the server gives out.

The encodings are kafka-python's.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c
from tests.unit.kafka.conftest import struct_of
from tests.unit.kafka.own_messages import kafka_python

from treecast.shims.kafka.versions import APIS

from .steps.base import Given, Named, Records, Step, Subscription
from .view import NOBODY, View, codes

Address = tuple[str, int]

ANSWER_S: Final = 30.0
PATIENCE_S: Final = 5.0  # until a definition is known, a transaction is complete, a retriable error is over
POLL_S: Final = 0.02
COORDINATORS_S: Final = 0.1  # until those of Kafka know what its brokers know
CLOSED: Final = "the connection ends"
# LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
# NOT_COORDINATOR, CONCURRENT_TRANSACTIONS
RETRIABLE: Final = frozenset({5, 6, 14, 15, 16, 51})
UNKNOWN_TOPIC: Final = 3
GROUPS, TRANSACTIONS = 0, 1  # kinds of coordinators
UNKNOWN: Final[dict[str, Any]] = {
    "member": "",
    "joined": "",
    "topic": NOBODY,
    "owned": [],
}  # before the server gave one; numbers: -1


class Actor:
    """A client. `creating` is the address at which topics are created, if it is another one."""

    def __init__(self, address: Address, creating: Address | None, now_ms: int) -> None:
        self._tag = f"-{uuid.uuid4().hex[:8]}."  # sorts before the ids that servers make
        self._now_ms = now_ms
        self._view = View(self._tag, now_ms)
        self._wire = Wire(address)
        self._creating = Wire(creating) if creating is not None else self._wire
        self._given: dict[tuple[str, str], Any] = {}
        self._sequences: Counter[tuple[str, str, int]] = Counter()  # by producer, topic, partition
        self._writing = ("", "", 0)
        for kind in (
            GROUPS,
            TRANSACTIONS,
        ):  # Kafka creates the topics of coordinators when it is asked for one
            asked = {"key": "any", "key_type": kind}
            self._repeat("FindCoordinator", 3, asked, lambda found: not found["error_code"], ANSWER_S)

    def close(self) -> None:
        self._wire.close()
        self._creating.close()

    def do(self, step: Step) -> object:
        """Sends a request, again while its error is retriable. Returns what is compared of the response."""
        if step.needs is not None and (step.needs.kind, step.needs.name) not in self._given:
            return None
        if step.unless is not None and self._given.get((step.unless.kind, step.unless.name), 0) > 0:
            return None
        if step.api == "Produce":
            self._writing, _ = _written(step)
        fields = self._resolved(step.fields)
        wire = self._creating if step.api in ("CreateTopics", "CreatePartitions") else self._wire
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                response = wire.call(step.api, step.version, fields)
            except (EOFError, ConnectionError):
                wire.open()
                return CLOSED
            if not RETRIABLE.intersection(codes(response)) or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self._learn(step, response)
        return self._view.of(step, response)

    # --- what the server has given out

    def _learn(self, step: Step, response: dict[str, Any]) -> None:
        code = response.get("error_code")
        if step.api == "Produce" and codes(response) == {0}:
            key, records = _written(step)
            if not records.sequence_change:
                self._sequences[key] += records.count
        elif step.api == "InitProducerId" and not code:
            for key in [key for key in self._sequences if key[0] == step.about]:
                del self._sequences[key]
            self._keep("producer", step.about, response["producer_id"])
            self._keep("epoch", step.about, response["producer_epoch"])
            self._wait_for_markers(step)
        elif step.api == "EndTxn":
            self._wait_for_markers(step)
        elif step.api == "JoinGroup" and response["member_id"]:
            self._keep("member", step.about, response["member_id"])
            if not code:
                self._keep("joined", step.about, response["member_id"])
                self._keep("generation", step.fields["group_id"].name, response["generation_id"])
                self._keep("joined generation", step.about, response["generation_id"])
        elif step.api == "ConsumerGroupHeartbeat" and not code:
            self._keep("member epoch", step.about, response["member_epoch"])
            if response["assignment"] is not None:
                self._keep("owned", step.about, response["assignment"]["topic_partitions"])
        elif step.api in ("CreateTopics", "CreatePartitions") and not step.fields["validate_only"]:
            for topic in response["topics" if step.api == "CreateTopics" else "results"]:
                if not topic["error_code"]:
                    self._wait_for_topic(topic["name"], step)
        elif step.api == "DeleteTopics":
            for topic in response["responses"]:
                if not topic["error_code"]:
                    self._metadata(topic["name"], lambda found: found["error_code"] == UNKNOWN_TOPIC)

    def _keep(self, kind: str, name: str, value: Any) -> None:
        self._given[kind, name] = value
        if kind in ("producer", "member", "topic"):
            self._view.stands_for[value] = f"{kind} of {name}"

    def _wait_for_topic(self, name: str, step: Step) -> None:
        asked = step.fields["topics"][0]
        count = asked["num_partitions"] if step.api == "CreateTopics" else asked["count"]
        found = self._metadata(name, lambda found: len(found["partitions"]) >= max(count, 1))
        self._keep("topic", name.removeprefix(self._tag), found["topic_id"])
        time.sleep(COORDINATORS_S)

    def _metadata(self, name: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        response = self._repeat("Metadata", 12, asked, lambda found: done(found["topics"][0]))
        topic: dict[str, Any] = response["topics"][0]
        return topic

    def _wait_for_markers(self, step: Step) -> None:
        """Waits until a transaction is complete, because Kafka answers before."""
        transactional_id = self._resolved(step.fields["transactional_id"])
        if transactional_id is not None:
            asked = {"transactional_ids": [transactional_id]}
            self._repeat("DescribeTransactions", 0, asked, _is_complete)

    def _repeat(
        self,
        api: str,
        version: int,
        fields: dict[str, Any],
        done: Callable[[dict[str, Any]], bool],
        patience: float = PATIENCE_S,
    ) -> dict[str, Any]:
        deadline = time.monotonic() + patience
        while not done(response := self._wire.call(api, version, fields)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {patience} s, {api} of {fields} still returns {response}")
            time.sleep(POLL_S)
        return response

    # --- requests

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, dict):
            resolved = {name: self._resolved(part) for name, part in value.items()}
            if isinstance(moment := resolved.get("timestamp"), str):
                resolved["timestamp"] = self._now_ms + {"now": 0, "next": 1, "later": 10**8}[moment]
            return resolved
        if isinstance(value, list):
            return [self._resolved(part) for part in value]
        if isinstance(value, Named):
            return self._tag + value.name
        if isinstance(value, Given):
            given = self._given.get((value.kind, value.name), UNKNOWN.get(value.kind, -1))
            return given + value.change if isinstance(given, int) else given
        if isinstance(value, Subscription):
            names = [self._resolved(name).encode() for name in value.topics]
            body = b"".join(len(name).to_bytes(2, "big") + name for name in names)
            return b"\0\0" + len(names).to_bytes(4, "big") + body + b"\0\0\0\0"
        return self._batch(value) if isinstance(value, Records) else value

    def _batch(self, asked: Records) -> bytes:
        sequence, epoch = -1, -1
        if asked.producer:
            sequence = max(self._sequences[self._writing] + asked.sequence_change, 0)
            epoch = max(self._given["epoch", asked.producer] + asked.epoch_change, 0)
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=asked.compression,
            is_transactional=asked.transactional,
            producer_id=self._given.get(("producer", asked.producer), -1),
            producer_epoch=epoch,
            base_sequence=sequence,
            batch_size=1 << 20,
        )
        for number in range(asked.count):
            key = b"k%d" % number if asked.keyed else None
            builder.append(number, self._now_ms + number, key, b"value" * 8, [("h", b"1")])
        return harmed(bytes(builder.build()), asked.harm)


def _written(step: Step) -> tuple[tuple[str, str, int], Records]:
    """Returns (producer, topic, partition) of a Produce, and what is written."""
    (topic,) = step.fields["topic_data"]
    (partition,) = topic["partition_data"]
    records: Records = partition["records"]
    return (records.producer, topic["name"].name, partition["index"]), records


def _is_complete(described: dict[str, Any]) -> bool:
    state: str = described["transaction_states"][0]["transaction_state"]
    return not state.startswith("Prepare")


def harmed(batch: bytes, harm: str) -> bytes:
    data = bytearray(batch)
    if harm == "crc":
        data[20] ^= 1
    elif harm == "cut":
        del data[-3:]
    elif harm == "magic":
        data[16] = 1
    elif harm == "twice":
        data += batch
    elif harm == "nothing":
        data.clear()
    elif harm == "offset":
        struct.pack_into(">q", data, 0, 7)
    elif harm == "control":
        data[22] |= DefaultRecordBatch.CONTROL_MASK
        struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    return bytes(data)


# --- the wire


@cache
def _flexible_from(api: str) -> int:
    return next(entry.flexible for entry in APIS.values() if entry.name == api)


class Wire:
    """One connection that sends a request and reads its response."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._number = 0
        self.open()

    def open(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def call(self, api: str, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Returns the response's fields. Raises EOFError or ConnectionError if the server closes."""
        request = struct_of(kafka_python(f"{api}Request"), fields, version)
        self._number += 1
        request.with_header(correlation_id=self._number, client_id="compared")
        self._socket.sendall(bytes(request.encode(header=True, framed=True)))
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        assert struct.unpack_from(">i", frame) == (self._number,)
        header = 5 if version >= _flexible_from(api) else 4
        response = kafka_python(f"{api}Response").decode(frame[header:], version=version)
        decoded: dict[str, Any] = response.to_dict(json=False)
        return decoded

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data
