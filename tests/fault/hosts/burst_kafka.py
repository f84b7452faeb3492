"""One end of a Kafka burst as a process that costs little beside the measured daemons.

    burst_kafka.py produce ADDRESS TOPIC PARTITIONS --records N [--before N] [--size N] [--batch N]
    burst_kafka.py steady ADDRESS TOPIC 1 --rate R [--size N]
    burst_kafka.py read ADDRESS TOPIC PARTITIONS

The producer encodes all record batches before it prints {"ready": true}. The line `trickle RATE` on its
standard input sends the first `--before` records one by one; `go` sends the rest at full speed. The reader is
ready once each partition has answered a fetch; `expect N` tells it the number of records. Both report their
progress and, by the machine's steady clock, when they began and when the last record arrived; their ledger
comes last. A batch is checked by its CRC-32C, its first number, its offset and its count. This covers all of
its bytes without a step per record while the clock runs.

`steady` sends one record at a time until its standard input ends, whether the last ones are answered or not.
Each record carries the time at which it was due, so that time spent waiting to be sent counts as latency.
librdkafka cannot be used: it polls without a pause while answers are late, which takes a core from the
measured processes.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from burst_batches import PRODUCER, RECORDS_AT, Batch, Encoder, encoded, look
from ledger import Ledger

from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import FetchRequest, parse_fetch_head, produce_error_position

WINDOW = 8  # requests in flight
_SAY_EVERY_S = 0.2
_QUIET_S = 0.5  # a reader waits this long for records that must not come
_FETCH_BYTES, _FETCH_WAIT_MS = 1 << 20, 200
_PREFIX = struct.Struct(">qi")
_ANSWER = struct.Struct(">hq")  # error, base offset


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


# --- the producer


class Sending:
    """One connection; replies come in the order of requests."""

    def __init__(self, options: argparse.Namespace) -> None:
        host, _, port = options.address.rpartition(":")
        self.topic = options.topic
        self.ledger = Ledger()
        self.acked = 0
        self._answer_at = produce_error_position(options.topic) - 4
        self._waiting: deque[Batch] = deque()
        self._given: SimpleQueue[Batch | None] = SimpleQueue()
        self._connection = Connection(host, int(port), 120)

    def send(self, batches: list[Batch], rate: float = 0.0) -> None:
        """Sends all batches and waits for their replies. `rate`: batches per second."""
        begun = said = time.monotonic()
        for number, batch in enumerate(batches):
            if rate:
                time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            self._connection.send(batch.frame)
            self._waiting.append(batch)
            while len(self._waiting) >= WINDOW:
                self._take()
            if time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                say(acked=self.acked, begun=begun)
        while self._waiting:
            self._take()
        say(acked=self.acked, begun=begun, last=time.monotonic())

    def put(self, batch: Batch | None) -> None:
        """Queues a batch for `take_all`, which ends after None."""
        if batch is not None:
            self._connection.send(batch.frame)
        self._given.put(batch)

    def take_all(self) -> None:
        """Takes replies to batches of one record, and notes them as the reader does."""
        while (batch := self._given.get()) is not None:
            error, offset = _ANSWER.unpack_from(self._connection.receive(), self._answer_at)
            if error:
                self.ledger.problems.append(f"the small stream was answered with error {error}")
            self.ledger.lane(PRODUCER, f"{self.topic}-0").note(batch.first, offset)

    def _take(self) -> None:
        batch = self._waiting.popleft()
        error, offset = _ANSWER.unpack_from(self._connection.receive(), self._answer_at)
        if error:
            self.ledger.problems.append(f"the burst: a batch was answered with error {error}")
            return
        lane = self.ledger.lane(PRODUCER, f"{self.topic}-{batch.partition}")
        lane.note_run(batch.first, offset, batch.records, batch.crc)
        self.acked += batch.records


def produce(options: argparse.Namespace) -> Ledger:
    limits = (options.before, options.records, options.size, options.batch)
    before, burst = encoded(options.topic, options.partitions, *limits)
    sending = Sending(options)
    say(ready=True, acked=0)
    for line in sys.stdin:
        match line.split():
            case ["trickle", rate]:
                sending.send(before, float(rate))
            case ["go"]:
                sending.send(burst)
                break
    return sending.ledger


def steady(options: argparse.Namespace) -> Ledger:
    """Sends on the clock while a thread takes the replies."""
    sending = Sending(options)
    encoder = Encoder(options.topic, 1, options.size)
    begun, number = time.monotonic(), 0
    answers = threading.Thread(target=sending.take_all)
    answers.start()
    while not select.select([sys.stdin], [], [], max(0.0, begun + number / options.rate - time.monotonic()))[
        0
    ]:
        sending.put(encoder.batch(0, number, begun + number / options.rate))
        number += 1
    sending.put(None)
    answers.join()
    return sending.ledger


# --- the reader


class Fetching:
    """One partition over its own connection."""

    def __init__(self, address: tuple[str, int], topic: str, partition: int, ledger: Ledger) -> None:
        self.answered = False
        self._place = f"{topic}-{partition}"
        self._lane = ledger.lane(PRODUCER, self._place)
        self._problems = ledger.problems
        self._request = FetchRequest(topic, partition, _FETCH_BYTES, 1, _FETCH_WAIT_MS)
        self._offset = 0
        self._buffer = bytearray(2 * _FETCH_BYTES)
        self._filled = 0
        self._socket = socket.create_connection(address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def ask(self) -> None:
        self._socket.sendall(self._request.at(self._offset))

    def receive(self) -> int:
        """Receives what has arrived; returns the number of records of a complete reply."""
        with memoryview(self._buffer) as view:
            count = self._socket.recv_into(view[self._filled :])
        if not count:
            raise ConnectionError(f"{self._place}: the daemon closed the connection")
        self._filled += count
        size = 4 + int.from_bytes(self._buffer[:4], "big") if self._filled >= 4 else 4
        if size > len(self._buffer):
            self._buffer += bytes(size - len(self._buffer))
        if self._filled < max(size, 5):
            return 0
        self._filled = 0
        self.answered = True
        found = self._walk()
        self.ask()
        return found

    def _walk(self) -> int:
        answer = parse_fetch_head(self._buffer)
        if answer.error:
            self._problems.append(f"{self._place}: a fetch was answered with error {answer.error}")
        at, end, found = answer.records_at, answer.records_at + answer.records_size, 0
        while at + RECORDS_AT < end:
            offset, length = _PREFIX.unpack_from(self._buffer, at)
            after = at + _PREFIX.size + length
            if after > end:
                break  # a reply may end in the middle of a batch
            found += self.note(offset, memoryview(self._buffer)[at:after])
            at = after
        return found

    def note(self, offset: int, batch: memoryview) -> int:
        """Notes a batch stored at `offset`; returns its number of records."""
        seen = look(batch)
        if not seen.whole:
            self._problems.append(f"{self._place} {offset}: the batch is damaged")
        if seen.producer != PRODUCER:
            self._problems.append(f"{self._place} {offset}: invented")
        self._lane.note_run(seen.first, offset, seen.records, seen.crc)
        self._offset = offset + seen.records
        return seen.records


def read(options: argparse.Namespace) -> Ledger:
    host, _, port = options.address.rpartition(":")
    ledger = Ledger()
    lanes = [
        Fetching((host, int(port)), options.topic, number, ledger) for number in range(options.partitions)
    ]
    poll = select.poll()
    for source in (sys.stdin, *lanes):
        poll.register(source, select.POLLIN)
    by_fd = {lane.fileno(): lane for lane in lanes}
    expected, count, last, said, ready = 2**62, 0, 0.0, 0.0, False
    while not ledger.problems and (count < expected or time.monotonic() < last + _QUIET_S):
        before = count
        for fd, _ in poll.poll(_QUIET_S * 1000):
            if fd in by_fd:
                count += by_fd[fd].receive()
            else:
                expected = _expected()
        now = time.monotonic()
        last = now if count > before else last
        ready = ready or all(lane.answered for lane in lanes)
        if now > said + _SAY_EVERY_S or before < expected <= count:
            say(ready=ready, read=count, last=last)
            said = now
    for lane in lanes:
        lane.close()
    return ledger


def _expected() -> int:
    """Returns the number given on standard input, or 0 once standard input has ended."""
    words = sys.stdin.readline().split()
    return int(words[1]) if words else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("end", choices=("produce", "steady", "read"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--before", type=int, default=0, help="records sent one by one")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1_000_000, help="bytes of a record batch")
    parser.add_argument("--rate", type=float, default=100.0, help="records per second of a steady stream")
    options = parser.parse_args()
    ledger = {"produce": produce, "steady": steady, "read": read}[options.end](options)
    print(json.dumps({"ledger": ledger.as_json()}), flush=True)


if __name__ == "__main__":
    main()
