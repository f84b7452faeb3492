"""Fixtures of the client tests. The tests run against any Kafka: Treecast by default, or the broker at the
address in TREECAST_TEST_KAFKA (HOST:PORT), so that they can be verified against Apache Kafka."""

from __future__ import annotations

import base64
import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.parser import KafkaProtocol

from treecast.middleware.daemon.process import DaemonProcess

ROOT = Path(__file__).resolve().parents[2]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their codes
PATIENCE_S = 45.0

# Tests import `bench.peers.kafka`, which knows Kafka's jars and tools.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


class Sample(NamedTuple):
    """A record as all clients can express it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Stored(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    sample: Sample


SAMPLES = (
    Sample(b"key", b"value"),
    Sample(None, b"no key"),
    Sample(b"tombstone", None),
    Sample(b"", b""),
    Sample(b"headers", b"h", (("plain", b"text"), ("empty", b""), ("bytes", bytes(range(256))))),
    Sample(b"repeated", b"h", (("same", b"1"), ("same", b"2"), ("ключ", "значение".encode()))),
    Sample("ключ".encode(), "значение 値".encode()),
    Sample(b"binary", bytes(range(256)) * 4),
    Sample(b"compressible", b"the same words again and again, " * 2000),
)


@pytest.fixture(scope="session")
def samples() -> Sequence[Sample]:
    return SAMPLES


@pytest.fixture(scope="session")
def make_sample() -> Callable[..., Sample]:
    return Sample


@pytest.fixture(scope="session", params=COMPRESSIONS)
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def compressions() -> Sequence[str]:
    return COMPRESSIONS


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of the broker under test."""
    given = os.environ.get("TREECAST_TEST_KAFKA")
    if given:
        yield given
        return
    daemon = DaemonProcess(tmp_path_factory.mktemp("clients") / "data", ["--log-level", "debug"])
    daemon.start()
    yield daemon.kafka
    alive = daemon.running
    code = daemon.stop() if alive else daemon.process.returncode
    log = daemon.clean_up()
    print(f"--- the end of the daemon's log\n{log[-20000:]}", file=sys.stderr)
    assert alive, f"the daemon ended during the tests with code {code}"
    assert code == 0


@pytest.fixture(scope="session")
def is_treecast() -> bool:
    return "TREECAST_TEST_KAFKA" not in os.environ


@pytest.fixture(scope="session")
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka, "log_level": 0})


_numbers = itertools.count()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Returns a function that makes names unused by other tests and runs."""
    run = uuid.uuid4().hex[:6]
    return lambda prefix: f"{prefix}-{run}-{next(_numbers)}"


@pytest.fixture
def new_topic(admin: AdminClient, unique: Callable[[str], str]) -> Callable[..., str]:
    """Returns `new_topic(partitions=1, config={})`, which makes a topic and returns its name."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None, prefix: str = "topic") -> str:
        name = unique(prefix)
        settings = {"retention.ms": "-1", **(config or {})}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    return create


def _until(condition: Callable[[], Any], step: Callable[[], Any] | None = None, what: str = "") -> Any:
    """Repeats `step` until `condition` is true, and returns its result."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE_S:g} s in vain for {what or condition}")
        if step is not None:
            step()
        else:
            time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    return _until


def _sample(message: Any) -> Sample:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Sample(message.key(), message.value(), headers)


@pytest.fixture
def read_all(kafka: str) -> Callable[..., list[Stored]]:
    """Returns `read_all(topic, isolation="read_uncommitted")`: all records of a topic, by partition and
    offset."""

    def read(topic: str, isolation: str = "read_uncommitted") -> list[Stored]:
        settings = {
            "bootstrap.servers": kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            return sorted(_drain(consumer, len(partitions)))
        finally:
            consumer.close()

    return read


def _drain(consumer: Consumer, partitions: int) -> list[Stored]:
    found: list[Stored] = []
    ended: set[int] = set()

    def step() -> None:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                stamp = message.timestamp()[1]
                found.append(Stored(message.partition(), message.offset(), stamp, _sample(message)))
            elif message.error().code() == -191:  # _PARTITION_EOF
                ended.add(message.partition())
            else:
                pytest.fail(str(message.error()))

    _until(lambda: len(ended) == partitions, step, "the end of every partition")
    return found


@pytest.fixture
def write_all(kafka: str) -> Callable[..., None]:
    """Returns `write_all(topic, samples, partition=0, timestamps=None)`, which uses confluent-kafka."""

    def write(
        topic: str, samples: Sequence[Sample], partition: int = 0, timestamps: Sequence[int] | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
        problems: list[Any] = []
        for number, sample in enumerate(samples):
            producer.produce(
                topic,
                key=sample.key,
                value=sample.value,
                headers=list(sample.headers),
                partition=partition,
                timestamp=timestamps[number] if timestamps else 0,
                on_delivery=lambda error, _: problems.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert not problems

    return write


class RawConnection:
    """A blocking connection that sends kafka-python's message objects, in versions chosen by the caller."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._protocol = KafkaProtocol(client_id="raw")

    def ask(self, request: Any) -> Any:
        self._protocol.send_request(request)
        self._socket.sendall(self._protocol.send_bytes())
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("closed by the broker")
            for _, response in self._protocol.receive_bytes(data):
                return response

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def raw(kafka: str) -> Iterator[RawConnection]:
    connection = RawConnection(kafka)
    yield connection
    connection.close()


@pytest.fixture
def stored_codecs(raw: RawConnection) -> Callable[[str, int], set[str]]:
    """Returns `stored_codecs(topic, partition)`: the compressions of the stored record batches."""

    def look(topic: str, partition: int) -> set[str]:
        wanted = FetchRequest.FetchTopic.FetchPartition
        request = FetchRequest(
            version=11,
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=50_000_000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(
                    version=11,
                    topic=topic,
                    partitions=[
                        wanted(
                            version=11,
                            partition=partition,
                            current_leader_epoch=-1,
                            fetch_offset=0,
                            log_start_offset=-1,
                            partition_max_bytes=50_000_000,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        [answer] = raw.ask(request).responses[0].partitions
        assert answer.error_code == 0
        return {COMPRESSIONS[code] for code in _batch_codecs(bytes(answer.records))}

    return look


def _batch_codecs(data: bytes) -> Iterator[int]:
    """Yields the compression bits of each batch: attributes are 16 bits at byte 21 of a batch of magic 2."""
    position = 0
    while position + 61 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        (attributes,) = struct.unpack_from(">h", data, position + 21)
        yield attributes & 7
        position += 12 + size


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "server.pem", folder / "key.pem"
    command = [require_tool("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    made.write_text(made.read_text() + key.read_text())
    return made


class JavaClient:
    """Probe.java in one virtual machine: `ask("read topic read_committed")` returns the reply's lines."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        self._answer()

    def ask(self, command: str) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        lines: list[str] = []
        watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line == "ok\n":
                    return lines
                if line.startswith("error "):
                    pytest.fail(line)
                lines.append(line.rstrip("\n"))
        finally:
            watchdog.cancel()
        pytest.fail(f"the Java client ended or was too slow: {self._log.read_text()[-3000:]}")

    def write(self, topic: str, partition: int, compression: str, samples: Sequence[Sample]) -> list[int]:
        words = " ".join(_words(sample) for sample in samples)
        return [int(line) for line in self.ask(f"write {topic} {partition} {compression} {words}")]

    def read(self, topic: str, isolation: str = "read_uncommitted") -> list[tuple[int, int, Sample]]:
        lines = (line.split(" ") for line in self.ask(f"read {topic} {isolation}"))
        return sorted((int(partition), int(offset), _from_words(words)) for partition, offset, words in lines)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _word(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode() or "="


def _bytes(word: str) -> bytes | None:
    return None if word == "-" else base64.b64decode(word) if word != "=" else b""


def _words(sample: Sample) -> str:
    headers = (part for name, value in sample.headers for part in (_word(name.encode()), _word(value)))
    return ",".join((_word(sample.key), _word(sample.value), *headers))


def _from_words(words: str) -> Sample:
    key, value, *headers = (_bytes(word) for word in words.split(","))
    names = [(name or b"").decode() for name in headers[::2]]
    return Sample(key, value, tuple(zip(names, headers[1::2], strict=True)))


@pytest.fixture(scope="session")
def kafka_jars(require: Callable[[object, str], None]) -> str:
    """Returns the class path with Kafka's clients and tools."""
    from bench.peers.kafka.jars import class_path, missing_tools

    missing = missing_tools()
    require(not missing, f"{', '.join(missing)} missing, which Kafka's Java clients take")
    return class_path()


@pytest.fixture(scope="session")
def java_client(
    kafka: str,
    kafka_jars: str,
    require_tool: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JavaClient]:
    folder = tmp_path_factory.mktemp("java")
    source = Path(__file__).parent / "java" / "Probe.java"
    compiler = [
        require_tool("javac"),
        "-encoding",
        "UTF-8",
        "-cp",
        kafka_jars,
        "-d",
        str(folder),
        str(source),
    ]
    subprocess.run(compiler, check=True, capture_output=True)
    options = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
    command = ["java", *options, "-cp", f"{folder}:{kafka_jars}", "Probe", kafka]
    client = JavaClient(command, folder / "log")
    yield client
    client.close()
