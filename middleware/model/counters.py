"""Plain integer counters: rooms increment them, `daemon.metrics` reads them. They are never reset."""

from __future__ import annotations

from msgspec import Struct, field

from .applications import Applications


class StorageCounters(Struct):
    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    read_bytes: int = 0
    fsyncs: int = 0
    rolled_segments: int = 0
    deleted_segments: int = 0
    compactions: int = 0
    truncated_bytes: int = 0  # torn tails that recovery cut off
    write_errors: int = 0


class BrokerCounters(Struct):
    rebalances: int = 0
    expired_members: int = 0
    committed_offsets: int = 0
    expired_offsets: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_timed_out: int = 0
    batches_skipped: int = 0  # staged in parts and repeated after their commit: not written again
    duplicate_batches: int = 0  # idempotent repeats, answered without an append
    refused: dict[str, int] = {}  # by Fault name
    schema_unmet: dict[str, int] = {}  # records that filters found not to meet their topic's schema, by topic


class RelayCounters(Struct):
    """The relay: what connects this host to the others."""

    coordinator_updates: int = 0
    coordinator_lost: int = 0  # times that it became unreachable
    coordinator_found: int = 0  # times that it became reachable again
    views_handed_in: int = 0  # to a coordinator whose store was an older state

    local_reads: int = 0  # fetches of partitions led elsewhere, served from local replicas
    local_read_bytes: int = 0
    proxied_reads: int = 0  # the same, served by asking the leader
    proxied_read_bytes: int = 0
    forwarded_appends: int = 0
    forwarded_bytes: int = 0
    replicated_batches: int = 0
    replicated_bytes: int = 0
    follows: int = 0  # times that a replica started or resumed following
    truncations: int = 0  # replicas that held more than their leaders
    restarted_replicas: int = 0  # replicas with nothing left in common with their leaders
    failed_chunks: int = 0  # chunks that a stream delivered and a replica could not store
    interest_heard: int = 0  # announcements from other hosts
    unconfirmed_interest: int = 0  # times that some reachable host did not acknowledge in time
    group_probes: int = 0
    group_hosts_confirmed: int = 0  # times that a host answered a multicast probe
    group_hosts_lost: int = 0  # times that a confirmed host stopped answering, or requested too many repairs
    refused_replicas: int = 0  # times that a leader would have truncated records that it must not
    rebuilt_partitions: int = 0  # partitions led here again after a disk loss
    copied_bytes: int = 0  # bytes copied for them
    lost_records: int = 0  # records of them that were known of but that no replica had
    stalled_replicas: int = 0  # times that a replica made no progress although its leader had more


class HomeCounters(Struct):
    """Homes of groups and transactional ids on a joined host."""

    asked: int = 0  # calls to the coordinator for the location of a home
    forwarded: int = 0  # calls to homes on other hosts
    served: int = 0  # calls from other hosts to homes here
    not_home: int = 0  # of those, refused because the home is not here or has another epoch
    taken_over: int = 0  # homes that moved here from another host
    reloaded: int = 0  # homes of this host whose rows here were older than the coordinator's store
    given_up: int = 0  # homes that moved to another host
    accepted_alone: int = 0  # items acknowledged without the coordinator's store
    not_merged: int = 0  # of those, dropped because another host had become the home
    store_calls: int = 0
    store_lost: int = 0  # times that the store became unreachable
    store_refused: dict[str, int] = {}  # writes of homes, by Fault name


class PubSubCounters(Struct):
    """Publish/subscribe on this host, in messages."""

    published: int = 0  # delivered to local subscribers
    unmatched: int = 0  # without any subscriber
    dropped_full: int = 0  # for clients whose queue was full
    handed_on: int = 0  # messages of shared subscriptions that went from one member to another
    shares_gone: int = 0  # messages of shared subscriptions whose last member had left
    dropped_large: int = 0  # larger than the client's maximum packet size
    expired: int = 0  # while waiting in a queue
    wills: int = 0
    retained_refused: int = 0  # because the limit of retained topics was reached
    refused_filters: int = 0
    forbidden: int = 0  # published without the right to
    sessions_expired: int = 0
    journal_errors: int = 0  # times that the disk refused a write
    journal_cut_bytes: int = 0  # torn bytes at the journal's end, cut off at start
    isolated: dict[str, int] = {}  # errors of one part of a turn that were kept from the others


class EventCounters(Struct):
    """MQTT messages between hosts. A message counts once, whatever the number of receiving hosts."""

    streams_opened: int = 0
    streams_received: int = 0
    batches_sent: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    repeated: int = 0  # duplicates, discarded
    sent_again: int = 0  # messages left over from an earlier run of this host
    dropped: int = 0  # because too many messages waited to be sent
    bad_batches: int = 0
    shares_alone: int = 0  # times that a shared subscription was served without the coordinator's answer
    retained_late: int = 0  # hosts that did not report their retained messages in time


class BridgeCounters(Struct):
    """The bridge between MQTT and Kafka topics."""

    recorded: int = 0  # MQTT messages that became records
    fed: int = 0  # records delivered to MQTT subscribers
    feeds: int = 0  # partitions followed for MQTT subscribers
    feeds_late: int = 0  # times that a SUBACK stopped waiting for the end of a partition
    feeds_failed: int = 0  # times that a partition could not be read
    feeds_cut: int = 0  # times that retention deleted records before delivery
    sent_again: int = 0  # messages that an earlier run had spooled
    dropped: int = 0  # because too many messages waited for a partition's leader
    refused: dict[str, int] = {}  # messages that can never be recorded, by Fault name


class PubSubLevels(Struct):
    """Current publish/subscribe levels, a few seconds old."""

    sessions: int = 0
    connected: int = 0
    subscriptions: int = 0
    retained: int = 0
    journal_bytes: int = 0


class QueueLevels(Struct):
    """How much there is now in queues, as of a moment ago."""

    queues: int = 0
    ready: int = 0
    unsettled: int = 0
    stored_bytes: int = 0


class FaceCounters(Struct):
    """One per face."""

    connections_opened: int = 0
    connections_closed: int = 0
    connections_refused: int = 0  # closed at once because no file descriptor was left
    bytes_in: int = 0
    bytes_out: int = 0
    filtered_records: int = 0  # records read, then excluded by the reader's filter
    requests: dict[str, int] = {}  # by request name
    protocol_errors: dict[str, int] = {}  # by reason


class ChannelCounters(Struct):
    """The channels to all other hosts."""

    dialled: int = 0
    accepted: int = 0
    opened: int = 0  # connections that reached use
    closed: int = 0  # of those, closed
    bytes_in: int = 0
    bytes_out: int = 0
    calls: int = 0
    notices: int = 0
    notices_dropped: int = 0  # because the host was not connected or too much waited
    answered: int = 0  # including refusals
    failed_unsent: int = 0
    failed_unknown: int = 0  # calls whose outcome is unknown
    requests: int = 0  # from other hosts, including notices
    faults: int = 0  # requests that were refused
    problems: dict[str, int] = {}  # refused and ended connections, by codec.Problem's names


class FabricCounters(Struct):
    """The host's edge of the fabric. Packets are counted on the wire, calls at the kernel."""

    sent_packets: int = 0
    sent_bytes: int = 0
    send_calls: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    receive_calls: int = 0
    deferred: int = 0  # times that the kernel accepted no more
    dropped_packets: int = 0  # because too many waited
    send_errors: dict[str, int] = {}  # by errno name
    refused: dict[str, int] = {}  # packets, by reason: a SegmentFault, a Refused, or one of the edge
    offload_refused: int = 0  # paths on which UDP_SEGMENT was given up
    fell_back: int = 0  # hosts that a group was found not to reach
    probes_sent: int = 0
    probes_received: int = 0
    beats_sent: int = 0  # signs of life for all streams that rest between two hosts
    beats_received: int = 0
    rests_broken: int = (
        0  # times that the resting streams of a host had to show themselves, for want of beats
    )
    sink_errors: int = 0  # streams left because the layer above failed
    isolated: dict[str, int] = {}  # errors of one part that were kept from the others, by kind of part


class StareCounters(Struct):
    """STARE's middleware at this host. Copies for the replica controller are counted apart."""

    published: int = 0  # updates of VNFs of this host
    sent_packets: int = 0  # to the network, including requests
    received_packets: int = 0
    delivered: int = 0  # updates, once per subscribing VNF
    delivered_here: int = 0  # of those, without use of the network
    recovered: int = 0  # updates received by unicast
    lost: int = 0  # updates that no host holds
    conflated: int = 0  # updates replaced by a newer one because a VNF did not read
    registers: int = 0  # SUB-registers, including repeats and refreshes
    removes: int = 0
    acknowledged: int = 0  # SUB-acks that a request waited for
    unanswered: int = 0  # times that a network was found not to acknowledge
    signals_sent: int = 0
    signals_received: int = 0
    values_dropped: int = 0  # last values evicted for lack of room
    refused: dict[str, int] = {}  # packets and signals, by reason


class ReplicaCounters(Struct):
    """The replica controller, on the host that runs it."""

    copies: int = 0  # packets of states that the network carried only to the controller
    updates: int = 0  # added to the backlog
    fetched: int = 0  # of those, fetched by unicast from a host that had them
    recovered: int = 0  # updates sent to hosts that had missed them
    gone: int = 0  # times that a host requested an update that was no longer held
    truncated: int = 0  # updates deleted because all hosts had them
    evicted: int = 0  # updates deleted for lack of room
    queries: int = 0
    vnfs_opened: int = 0
    vnfs_closed: int = 0
    refused: dict[str, int] = {}


class Counters(Struct):
    """All counters of a daemon."""

    storage: StorageCounters = field(default_factory=StorageCounters)
    broker: BrokerCounters = field(default_factory=BrokerCounters)
    relay: RelayCounters = field(default_factory=RelayCounters)
    channel: ChannelCounters = field(default_factory=ChannelCounters)
    fabric: FabricCounters = field(default_factory=FabricCounters)
    homes: HomeCounters = field(default_factory=HomeCounters)
    stare: StareCounters = field(default_factory=StareCounters)
    replicas: ReplicaCounters = field(default_factory=ReplicaCounters)
    pubsub: PubSubCounters = field(default_factory=PubSubCounters)
    events: EventCounters = field(default_factory=EventCounters)
    bridge: BridgeCounters = field(default_factory=BridgeCounters)
    pubsub_levels: PubSubLevels = field(default_factory=PubSubLevels)
    queue_levels: QueueLevels = field(default_factory=QueueLevels)
    faces: dict[str, FaceCounters] = {}
    applications: Applications = field(default_factory=Applications)

    def face(self, name: str) -> FaceCounters:
        return self.faces.setdefault(name, FaceCounters())
