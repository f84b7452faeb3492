"""Prometheus metrics: the plain counters of `model.counters`, and the contents of `view`, at one moment.

Names begin with `treecast_`; those of the process are Prometheus' standard ones. Counters count from the
daemon's start. Imported with the admin server, on its first connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import fields
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from treecast.middleware.api.copies import copies_per_payload
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.model.counters import Counters, FaceCounters

from .resource_problems import Troubles
from .status import CoordinatorCounts
from .view import GroupView, Listing, ProcessView


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of the metrics."""

    info: Mapping[str, str]
    started_at: float  # seconds since the Unix epoch
    counters: Counters
    partitions: Listing
    groups: Sequence[GroupView]
    left_out: Mapping[str, int]  # by kind: existing but not listed
    process: ProcessView
    hosts: Sequence[pb.HostStatus] = ()
    streams: Sequence[pb.StreamStatus] = ()
    coordinator: pb.CoordinatorStatus | None = None
    calls: CoordinatorCounts | None = None
    troubles: Troubles | None = None
    certificates: Sequence[tuple[str, float]] = ()  # what each is, and its end, in seconds since the epoch


class Observation:
    """One scrape, in the form of a registry for prometheus-client's encoders."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        observed = self._observed
        yield InfoMetricFamily(
            "treecast", "The daemon: its name, version and cluster.", value=dict(observed.info)
        )
        yield from _process(observed.process, observed.started_at)
        if observed.troubles is not None:
            yield from _room(observed.troubles)
        yield _ends(observed.certificates)
        yield from _numbers("treecast_storage", observed.counters.storage, "storage")
        yield from _numbers("treecast_broker", observed.counters.broker, "broker")
        yield from _numbers("treecast_stare", observed.counters.stare, "STARE's middleware")
        yield from _numbers("treecast_replicas", observed.counters.replicas, "the replica controller")
        yield from _pubsub(observed.counters)
        yield from _levels("treecast_queues", observed.counters.queue_levels, "AMQP queues, a moment ago")
        yield from _faces(observed.counters.faces)
        if observed.coordinator is not None:
            yield from _numbers("treecast_relay", observed.counters.relay, "relay")
            yield from _numbers("treecast_homes", observed.counters.homes, "homes")
            yield from _numbers("treecast_channel", observed.counters.channel, "the channel between hosts")
            yield from _numbers("treecast_fabric", observed.counters.fabric, "the fabric")
            yield from _numbers("treecast_events", observed.counters.events, "event streams")
            yield _gauge(
                "treecast_coordinator_up",
                "1 while the coordinator answers.",
                int(observed.coordinator.reachable),
            )
            if observed.calls is not None:
                yield from _calls(observed.calls)
            yield from _hosts(observed.hosts)
            yield from _streams(observed.streams)
        yield from _topics(observed.partitions)
        yield from _groups(observed.groups, observed.left_out.get("groups", 0))
        yield _left_out(observed.left_out)


def encode(observed: Observed, accept: str) -> tuple[bytes, str]:
    """Returns the metrics and their content type, in the format that the scraper's Accept header asks for."""
    encoder, content_type = choose_encoder(accept)
    return encoder(Observation(observed)), content_type


def _gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, doc, value=value)


def _process(process: ProcessView, started_at: float) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "process_cpu_seconds", "User and system CPU time of the process.", value=process.cpu_seconds
    )
    yield _gauge("process_resident_memory_bytes", "Resident memory of the process.", process.resident_bytes)
    yield _gauge("process_open_fds", "Open file descriptors of the process.", process.open_files)
    yield _gauge("process_max_fds", "Limit of open file descriptors.", process.open_files_limit)
    yield _gauge("process_start_time_seconds", "Start time of the process, since the Unix epoch.", started_at)


def _room(troubles: Troubles) -> Iterator[Metric]:
    """Yields the free space and the present kinds of trouble."""
    if troubles.space is not None:
        where = "of the data directory's file system"
        yield _gauge("treecast_disk_free_bytes", f"Free space {where}.", troubles.space.free)
        yield _gauge("treecast_disk_bytes", f"Size {where}.", troubles.space.size)
    refuses, full = int(bool(troubles.disk.text)), int(bool(troubles.descriptors.text))
    yield _gauge("treecast_disk_refuses", "1 while the disk refuses writes.", refuses)
    yield _gauge(
        "treecast_descriptors_used_up", "1 while clients are turned away for lack of file descriptors.", full
    )


def _ends(certificates: Sequence[tuple[str, float]]) -> Metric:
    doc = "End of a certificate that the daemon serves with, since the Unix epoch."
    family = GaugeMetricFamily("treecast_certificate_end_seconds", doc, labels=["certificate"])
    for what, at in certificates:
        family.add_metric([what.removeprefix("the certificate of ")], at)
    return family


def _metric(field: str) -> str:
    """Returns a counter's name as a metric: a unit stands last."""
    return {"bytes_in": "received_bytes", "bytes_out": "sent_bytes"}.get(field, field)


def _numbers(prefix: str, counters: Struct, room: str) -> Iterator[Metric]:
    """Yields each integer field of a struct of counters as a counter, each dictionary as one with a label."""
    for field in fields(counters):
        value, name = getattr(counters, field.name), _metric(field.name)
        doc = f"{name.replace('_', ' ').capitalize()}, counted by {room}."
        if isinstance(value, dict):
            family = CounterMetricFamily(f"{prefix}_{name}", doc, labels=["reason"])
            for reason, count in sorted(value.items()):
                family.add_metric([reason], count)
            yield family
        else:
            yield CounterMetricFamily(f"{prefix}_{name}", doc, value=value)


def _pubsub(counters: Counters) -> Iterator[Metric]:
    yield from _numbers("treecast_pubsub", counters.pubsub, "publish/subscribe")
    yield from _numbers("treecast_bridge", counters.bridge, "topics that faces share")
    yield from _levels("treecast_pubsub", counters.pubsub_levels, "publish/subscribe, a few seconds ago")


def _levels(prefix: str, levels: Struct, what: str) -> Iterator[Metric]:
    """Each field of a struct of levels as a gauge."""
    for field in fields(levels):
        doc = f"{field.name.replace('_', ' ').capitalize()} of {what}."
        yield _gauge(f"{prefix}_{field.name}", doc, getattr(levels, field.name))


def _faces(faces: Mapping[str, FaceCounters]) -> Iterator[Metric]:
    open_now = GaugeMetricFamily("treecast_face_connections", "Open connections.", labels=["face"])
    for name, face in sorted(faces.items()):
        open_now.add_metric([name], face.connections_opened - face.connections_closed)
    yield open_now
    for field in fields(FaceCounters):
        labels = {"requests": ["face", "request"], "protocol_errors": ["face", "reason"]}
        metric = _metric(field.name)
        family = CounterMetricFamily(
            f"treecast_face_{metric}",
            f"{metric.replace('_', ' ').capitalize()} of a face.",
            labels=labels.get(field.name, ["face"]),
        )
        for name, face in sorted(faces.items()):
            value = getattr(face, field.name)
            if isinstance(value, dict):
                for label, count in sorted(value.items()):
                    family.add_metric([name, label], count)
            else:
                family.add_metric([name], value)
        yield family


def _calls(counted: CoordinatorCounts) -> Iterator[Metric]:
    """Yields calls from other hosts to the coordinator in this daemon."""
    calls = CounterMetricFamily(
        "treecast_coordinator_calls",
        "Calls of other hosts to the coordinator in this daemon.",
        labels=["call"],
    )
    refused = CounterMetricFamily(
        "treecast_coordinator_refused",
        "Calls that the coordinator in this daemon refused.",
        labels=["reason"],
    )
    for family, counts in ((calls, counted.calls), (refused, counted.refused)):
        for label, count in sorted(counts.items()):
            family.add_metric([label], count)
        yield family
    yield _gauge("treecast_coordinator_watchers", "Watchers of the coordinator.", counted.watchers)
    yield CounterMetricFamily(
        "treecast_coordinator_watchers_dropped",
        "Watchers dropped because they read nothing.",
        value=counted.watchers_dropped,
    )


def _hosts(hosts: Sequence[pb.HostStatus]) -> Iterator[Metric]:
    attached = GaugeMetricFamily("treecast_host_attached", "1 while the host has its lease.", labels=["host"])
    connected = GaugeMetricFamily(
        "treecast_host_connected", "1 while the channel to the host is connected.", labels=["host"]
    )
    trip = GaugeMetricFamily(
        "treecast_host_round_trip_seconds", "Round trip time of the channel to the host.", labels=["host"]
    )
    for host in hosts:
        attached.add_metric([host.name], int(host.presence == "attached"))
        if not host.here:
            connected.add_metric([host.name], int(host.channel.connected))
            trip.add_metric([host.name], host.channel.round_trip_seconds)
    yield from (attached, connected, trip)


def _streams(streams: Sequence[pb.StreamStatus]) -> Iterator[Metric]:
    """Yields stream accounts, as gauges because an account restarts with its stream's epoch."""
    labels = ["stream", "epoch", "host", "fate", "reason"]
    records = GaugeMetricFamily(
        "treecast_stream_records",
        "Records addressed to a receiver, by fate.",
        labels=labels,
    )
    closed = GaugeMetricFamily(
        "treecast_stream_closed", "1 while no record is outstanding.", labels=labels[:3]
    )
    behind = GaugeMetricFamily(
        "treecast_stream_behind",
        "Records of the stream that this host lacks.",
        labels=["stream", "epoch", "origin"],
    )
    ways = [*labels[:2], "carrier", "purpose"]
    packets = GaugeMetricFamily(
        "treecast_stream_sent_packets", "Packets sent; each copy counts.", labels=ways
    )
    sizes = GaugeMetricFamily(
        "treecast_stream_sent_bytes", "Bytes of segments in these packets.", labels=ways
    )
    payload = GaugeMetricFamily(
        "treecast_stream_payload_bytes", "Payload bytes sent to all receivers, each once.", labels=labels[:2]
    )
    copies = GaugeMetricFamily(
        "treecast_stream_copies_per_payload",
        "Bytes sent with payload per payload byte; little more than 1 for a group.",
        labels=labels[:2],
    )
    out = GaugeMetricFamily(
        "treecast_stream_out_seconds", "Time since the receiver was live.", labels=labels[:3]
    )
    for stream in streams:
        where = [stream.name or str(stream.stream), str(stream.epoch)]
        if stream.pace.payload_bytes:
            payload.add_metric(where, stream.pace.payload_bytes)
            by_purpose = [(sent.purpose, sent.bytes) for sent in stream.sent]
            copies.add_metric(where, copies_per_payload(by_purpose, stream.pace.payload_bytes))
        for sent in stream.sent:
            packets.add_metric([*where, sent.carrier, sent.purpose], sent.packets)
            sizes.add_metric([*where, sent.carrier, sent.purpose], sent.bytes)
        for account in stream.accounts:
            closed.add_metric([*where, account.host], int(account.closed))
            if stream.outgoing:
                out.add_metric([*where, account.host], account.out_for)
            for fate in ("addressed", "live", "repaired", "replayed", "filtered", "outstanding"):
                records.add_metric([*where, account.host, fate, ""], getattr(account, fate))
            for fate in ("expired", "refused"):
                for reason, count in sorted(getattr(account, fate).items()):
                    records.add_metric([*where, account.host, fate, reason], count)
        if not stream.outgoing:
            behind.add_metric([*where, stream.origin], stream.end - stream.next)
    yield from (records, closed, packets, sizes, behind, payload, copies, out)


def _left_out(counts: Mapping[str, int]) -> Metric:
    doc = "Items that are not listed, by kind; --metrics-listed sets the limit."
    family = GaugeMetricFamily("treecast_metrics_left_out", doc, labels=["kind"])
    for kind, count in counts.items():
        family.add_metric([kind], count)
    return family


def _topics(partitions: Listing) -> Iterator[Metric]:
    yield _gauge("treecast_topics", "Topics.", partitions.topics)
    yield _gauge("treecast_partitions", "Partitions of all topics.", partitions.partitions)
    yield _gauge("treecast_log_bytes", "Size of all logs on this host.", partitions.size)
    families = {
        attribute: GaugeMetricFamily(f"treecast_partition_{name}", doc, labels=["topic", "partition"])
        for attribute, name, doc in (
            ("start_offset", "start_offset", "First offset of the log."),
            ("end_offset", "end_offset", "Offset of the next record."),
            ("stable_offset", "stable_offset", "Last stable offset: the end that read_committed sees."),
            ("size", "log_bytes", "Size of the log on this host."),
        )
    }
    for topic in partitions.listed:
        for partition in topic.partitions:
            for attribute, family in families.items():
                value = getattr(partition, attribute)
                if value >= 0:  # otherwise its leader is unreachable
                    family.add_metric([topic.topic.name, str(partition.index)], value)
    yield from families.values()


def _groups(groups: Sequence[GroupView], more: int) -> Iterator[Metric]:
    yield _gauge("treecast_groups", "Consumer groups.", len(groups) + more)
    members = GaugeMetricFamily("treecast_group_members", "Members of the group.", labels=["group", "state"])
    labels = ["group", "topic", "partition"]
    committed = GaugeMetricFamily(
        "treecast_group_committed_offset", "Committed offset of the group.", labels=labels
    )
    lag = GaugeMetricFamily(
        "treecast_group_lag", "Records between the committed offset and the log's end.", labels=labels
    )
    for group in groups:
        description = group.description
        members.add_metric([description.group_id, description.state], len(description.members))
        for offset in group.offsets:
            where = [description.group_id, offset.partition.topic, str(offset.partition.partition)]
            committed.add_metric(where, offset.committed)
            lag.add_metric(where, offset.lag)
    yield from (members, committed, lag)
