"""`treecast produce`: sends lines of a file or of standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.quiet import quiet

from .kafka import BOOTSTRAP_MS, KAFKA_LOGS, explained
from .options import INT31, Kafka, KafkaPassword, KafkaUser, kafka_at, kafka_log_in, pairs
from .output import CommandError, print_json, say, size_text
from .waiting import Waiting

if TYPE_CHECKING:
    from treecast.middleware.api.v1 import daemon_pb2 as pb

STATUS_SECONDS = 2.0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read this instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str, typer.Option("--key-separator", metavar="TEXT", help="What parts key and value of a line.")
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every record; repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=INT31, help="Default: by the key, else spread.")
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", metavar="|".join(COMPRESSIONS), help="Of the batches.")
    ] = "none",
    acks: Annotated[
        str, typer.Option("--acks", metavar="all|1|0", help="Acknowledgements to wait for; 0: none.")
    ] = "all",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    kafka: Kafka = None,
    user: KafkaUser = None,
    password_file: KafkaPassword = None,
) -> None:
    """Sends each line as one record; ends when all are acknowledged."""
    if compression not in COMPRESSIONS:
        raise CommandError(f"--compression {compression}: expected one of {', '.join(COMPRESSIONS)}")
    if acks not in ("all", "0", "1"):
        raise CommandError(f"--acks {acks}: expected all, 1 or 0")
    log_in = kafka_log_in(user, password_file)
    headers = [(name, value.encode()) for name, value in pairs(header or [], "--header").items()]
    with quiet(KAFKA_LOGS), explained(address := kafka_at(kafka)), _lines(file) as (source, total):
        from treecast.shims.kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=str(address),
            **log_in,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            linger_ms=5,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )
        sent = _Sending(producer, topic, partition, headers)
        try:
            with Waiting(sent.counts, str(address), lambda: _problems(address.address)):
                for line in _progress(source, total):
                    sent.send(line, key_separator.encode())
                sent.finish()
        finally:
            producer.close(timeout=0 if sent.refused else 30)
    _report(sent, topic, json)


def _problems(kafka: Address) -> list[str]:
    """Returns the daemon's problems, if the daemon of this host serves the address."""
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.rpc import Unreachable
    from treecast.middleware.model.errors import TreecastError

    try:
        with DaemonClient(timeout=STATUS_SECONDS) as client:
            status = client.status()
            return list(status.problems) if _serves(status, kafka) else []
    except (TreecastError, Unreachable, ValueError):
        return []


def _serves(status: pb.StatusResponse, kafka: Address) -> bool:
    """Returns whether the daemon has its Kafka face there, or listens on all addresses of this host."""
    faces = [Address.parse(face.address) for face in status.faces if face.name == "kafka"]
    return any(kafka in (face, Address(kafka.host, face.port)) for face in faces)


@dataclass
class _Sending:
    """One producer's records and their outcomes."""

    producer: Any
    topic: str
    partition: int | None
    headers: list[tuple[str, bytes]]
    records: int = 0
    size: int = 0
    answered: int = 0
    refused: list[Exception] = field(default_factory=list)

    def counts(self) -> tuple[int, int]:
        """Returns the numbers of acknowledged and of other records."""
        return self.answered, self.records - self.answered

    def _acknowledged(self, _: object) -> None:
        self.answered += 1

    def send(self, line: bytes, separator: bytes) -> None:
        key, found, value = line.partition(separator) if separator else (b"", b"", line)
        if separator and not found:
            raise CommandError(
                f"line {self.records + 1} holds no {separator.decode()!r}; nothing after it was sent"
            )
        if self.refused:
            raise self.refused[0]
        future = self.producer.send(
            self.topic,
            value,
            key=key if separator else None,
            headers=self.headers,
            partition=self.partition,
        )
        future.add_errback(self.refused.append)
        future.add_callback(self._acknowledged)
        self.records += 1
        self.size += len(line)

    def finish(self) -> None:
        """Waits for all acknowledgements. Raises the first refusal."""
        self.producer.flush()
        if self.refused:
            raise self.refused[0]


@contextmanager
def _lines(path: Path | None) -> Iterator[tuple[IO[bytes], int | None]]:
    """Yields the input and its size, if known."""
    if path is None:
        yield sys.stdin.buffer, None
        return
    try:
        with path.open("rb") as file:
            yield file, path.stat().st_size
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandError(f"cannot read {error.filename}: {error.strerror}") from error


def _progress(source: IO[bytes], total: int | None) -> Iterator[bytes]:
    """Yields the lines without their ends; shows a bar on a terminal if the size is known."""
    if total is None or not sys.stderr.isatty():
        for line in source:
            yield line.rstrip(b"\r\n")
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("producing", total=total)
        for line in source:
            progress.advance(task, len(line))
            yield line.rstrip(b"\r\n")


def _report(sent: _Sending, topic: str, json: bool) -> None:
    if json:
        print_json({"topic": topic, "records": sent.records, "bytes": sent.size})
    else:
        say(f"produced {sent.records:,} records ({size_text(sent.size)}) to {topic}", err=True)
