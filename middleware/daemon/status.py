"""A daemon's status, as the control service sends it and `/status` shows it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

import treecast
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import Cluster, Topic
from treecast.middleware.model.counters import Counters, FaceCounters
from treecast.shims.face import OpenListener, Pages

from .compiled import compiled_modules, why_interpreted
from .resource_problems import Troubles
from .settings import Settings
from .view import TopicView, view_process, view_topics

if TYPE_CHECKING:
    from treecast.middleware.relay.next_hops import NextHops

    from .explain import Explanation


class CoordinatorCounts(Protocol):
    """Counts of a coordinator: calls by name, refused ones by reason, present and dropped watchers."""

    calls: dict[str, int]
    refused: dict[str, int]
    watchers: int
    watchers_dropped: int


class JoinedView(Protocol):
    """The view of a cluster, implemented by `joined_view.JoinedHost`."""

    def coordinator(self) -> pb.CoordinatorStatus: ...

    async def events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Returns events of the cluster. Raises COORDINATOR_UNAVAILABLE."""

    async def ask_coordinator(self) -> pb.CoordinatorStatus:
        """Returns the same as `coordinator`, with the problems that a remote coordinator reports, if it
        answers in time.
        """

    def calls(self) -> CoordinatorCounts | None:
        """Returns the counts of the coordinator in this daemon; None if it is elsewhere."""

    def hosts(self) -> Sequence[pb.HostStatus]: ...

    def name(self, host_id: int) -> str:
        """Returns the name of a host."""

    @property
    def ways(self) -> NextHops:
        """The ways of messages published here."""

    def leader(self, topic: str, index: int) -> str:
        """Returns the name of a partition's leader."""

    def is_home(self, group_id: str) -> bool:
        """Returns whether this host is the group's home; each host's metrics cover its own groups."""

    def fabric(self) -> pb.FabricResponse: ...

    def streams(self) -> Sequence[pb.StreamStatus]: ...

    def unreached(self) -> Sequence[str]:
        """Returns the groups that do not reach all of their hosts any more, as sentences."""

    def standings(self, topic: str = "") -> Sequence[pb.PartitionStanding]:
        """Returns the state of partitions, optionally of one topic."""

    def troubled(self) -> Sequence[pb.PartitionStanding]:
        """Returns partitions that are in trouble or have lost records."""

    async def promote(self, request: pb.PromotePartitionRequest, topic: Topic) -> str:
        """Moves the partition's leadership to another host. Returns a sentence about what was done."""

    async def rebuild(self, request: pb.RebuildPartitionRequest, topic: Topic) -> str:
        """Lets a waiting partition continue, or restarts a refused copy. Returns a sentence about what was
        done.
        """

    def export(self, first: int) -> pb.ExportViewResponse:
        """Returns a page of the coordinator's view, from the entry numbered `first`."""

    def isolation(self) -> str:
        """Returns why no other host accepts this one; empty if any does or there is no other."""

    def problems(self) -> Sequence[str]:
        """Returns the problems of this host, as sentences."""

    def set_rules(self, request: pb.SetRulesRequest) -> int:
        """Sets the rules by which a carrier sends. Returns the version that is now used."""

    def receiver_sets(self) -> Sequence[pb.ReceiverSet]:
        """Returns the sets of hosts that this host sends to by carriers that follow rules."""

    def wishes(self) -> Sequence[pb.TopicWish]:
        """Returns what this host wants of other hosts' messages."""


class Subject(Struct):
    """The subject of the admin interfaces. `ready`: serving, and not shutting down.

    `joined`: None for a host alone. `troubles`: None if nothing watches for them. `pages`: what
    faces add to the admin address. `explanation` and `listening`: None until all faces are open.
    `users`: whoever watches the file of users. `certificates`: whoever watches those of the faces.
    """

    settings: Settings
    counters: Counters
    cluster: Cluster
    faces: Mapping[str, OpenListener]
    started_at: float
    ready: bool = False
    joined: JoinedView | None = None
    troubles: Troubles | None = None
    pages: Sequence[Pages] = ()
    explanation: Explanation | None = None
    listening: Listening | None = None
    users: Watched | None = None
    certificates: WatchedFiles | None = None


class Watched(Protocol):
    """Watches the file of users."""

    @property
    def trouble(self) -> str:
        """Why the file cannot be used as it is now, as a sentence; empty if it can."""


class WatchedFiles(Protocol):
    """Watches several files."""

    @property
    def troubles(self) -> Sequence[str]:
        """Why some cannot be used as they are now, each as a sentence."""

    def ends(self) -> Sequence[tuple[str, float]]:
        """Returns what each certificate is, in words, and when it ends, in seconds since 1970."""


class Listening(Protocol):
    """Looks after the addresses of listeners."""

    @property
    def problems(self) -> Sequence[str]: ...

    def is_gone(self, address: str) -> bool:
        """Whether no interface has the address of a listener, HOST:PORT, any more."""


def _problems(subject: Subject) -> list[str]:
    """Returns the problems, each as a sentence."""
    found = list(subject.troubles.texts()) if subject.troubles is not None else []
    found += subject.listening.problems if subject.listening is not None else ()
    found += [subject.users.trouble] if subject.users is not None and subject.users.trouble else ()
    found += subject.certificates.troubles if subject.certificates is not None else ()
    return [*found, *(subject.joined.problems() if subject.joined is not None else ())]


async def take_status(subject: Subject, now: float) -> pb.StatusResponse:
    """Returns the status. `now` in seconds since the Unix epoch."""
    topics = await view_topics(subject.cluster)
    groups = await subject.cluster.list_groups()
    process = view_process()
    compiled = compiled_modules()
    space = subject.troubles.space if subject.troubles is not None else None
    return pb.StatusResponse(
        name=subject.settings.name,
        version=treecast.__version__,
        cluster_id=subject.cluster.cluster_id,
        host_id=subject.cluster.host.host_id,
        pid=os.getpid(),
        uptime_seconds=now - subject.started_at,
        data_dir=subject.settings.data,
        fsync=subject.settings.fsync.value,
        event_loop=type(asyncio.get_running_loop()).__module__.split(".")[0],
        compiled_modules=compiled,
        why_interpreted="" if compiled else why_interpreted(),
        faces=[_face(subject, face) for face in subject.faces.values()],
        totals=_totals(topics, len(groups), subject.counters),
        resources=pb.Resources(
            resident_bytes=process.resident_bytes,
            cpu_seconds=process.cpu_seconds,
            open_files=process.open_files,
            open_files_limit=process.open_files_limit,
            disk_free_bytes=space.free if space is not None else 0,
            disk_bytes=space.size if space is not None else 0,
        ),
        coordinator=await subject.joined.ask_coordinator() if subject.joined is not None else None,
        hosts=subject.joined.hosts() if subject.joined is not None else (),
        problems=_problems(subject),
        certificates=[pb.Certificate(what=what, ends_at=at) for what, at in ends_of(subject)],
    )


def ends_of(subject: Subject) -> Sequence[tuple[str, float]]:
    """Returns the ends of all certificates that this daemon serves with."""
    return subject.certificates.ends() if subject.certificates is not None else ()


def _face(subject: Subject, face: OpenListener) -> pb.Face:
    counters = subject.counters.faces
    gone = subject.listening is not None and subject.listening.is_gone(face.address)
    message = pb.Face(name=face.name, address=face.address, unix_socket=str(face.socket or ""), gone=gone)
    if face.name in counters:
        message.traffic.CopyFrom(_traffic(counters[face.name]))
    return message


def _traffic(counted: FaceCounters) -> pb.Traffic:
    return pb.Traffic(
        connections=counted.connections_opened - counted.connections_closed,
        connections_opened=counted.connections_opened,
        bytes_in=counted.bytes_in,
        bytes_out=counted.bytes_out,
        requests=sum(counted.requests.values()),
        protocol_errors=sum(counted.protocol_errors.values()),
    )


def _totals(topics: Sequence[TopicView], groups: int, counters: Counters) -> pb.Totals:
    return pb.Totals(
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        groups=groups,
        records_in=counters.storage.appended_records,
        bytes_in=counters.storage.appended_bytes,
        bytes_out=counters.storage.read_bytes,
        records_stored=sum(topic.records for topic in topics),
        bytes_stored=sum(topic.size for topic in topics),
    )
