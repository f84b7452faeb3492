"""Plain integers that rooms add to and `daemon.metrics` reads. Never reset while a daemon runs."""

from __future__ import annotations

from msgspec import Struct, field


class StorageCounters(Struct):
    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    read_bytes: int = 0
    fsyncs: int = 0
    rolled_segments: int = 0
    deleted_segments: int = 0
    compactions: int = 0
    truncated_bytes: int = 0  # torn tails cut off by recovery
    write_errors: int = 0


class BrokerCounters(Struct):
    rebalances: int = 0
    expired_members: int = 0
    committed_offsets: int = 0
    expired_offsets: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_timed_out: int = 0
    batches_skipped: int = 0  # staged in parts, and repeated after they had been committed: not written again
    duplicate_batches: int = 0  # idempotent repeats answered without an append
    refused: dict[str, int] = {}  # by Fault name


class RelayCounters(Struct):
    """What joins this host to the others."""

    coordinator_updates: int = 0
    coordinator_lost: int = 0  # times that it went away
    coordinator_found: int = 0  # times that it came back

    local_reads: int = 0  # fetches of partitions led elsewhere, served from their replicas
    local_read_bytes: int = 0
    proxied_reads: int = 0  # the same, served by asking the leader
    proxied_read_bytes: int = 0
    forwarded_appends: int = 0
    forwarded_bytes: int = 0
    replicated_batches: int = 0
    replicated_bytes: int = 0
    follows: int = 0  # times that a replica was begun, or went on
    truncations: int = 0  # replicas that had more than their leaders
    restarted_replicas: int = 0  # whose leaders had nothing in common with them any more
    failed_chunks: int = 0  # what a stream brought and a replica could not take
    interest_heard: int = 0  # announcements of other hosts
    unconfirmed_interest: int = 0  # times that not all hosts that could be reached had acknowledged in time
    group_probes: int = 0
    group_hosts_confirmed: int = 0  # times that a host answered a probe that came by multicast
    group_hosts_lost: int = 0  # times that a confirmed host answered no more, or asked for too much
    refused_replicas: int = 0  # times that a leader would have cut what it may not
    rebuilt_partitions: int = 0  # led here again after the disk was lost
    copied_bytes: int = 0  # for them
    lost_records: int = 0  # of those, what was heard of and no copy had
    stalled_replicas: int = 0  # times that a replica made no progress though its leader had more


class HomeCounters(Struct):
    """Homes of groups and transactional ids, of a joined host."""

    asked: int = 0  # calls to the coordinator for where a home is
    forwarded: int = 0  # calls to homes on other hosts
    served: int = 0  # calls of other hosts to homes here
    not_home: int = 0  # of those, refused as the home is not here, or not in that epoch
    taken_over: int = 0  # homes that came here from another host
    given_up: int = 0  # homes that went to another host
    accepted_alone: int = 0  # items that were answered for without the coordinator's store
    not_merged: int = 0  # of those, left out as another host had become the home
    store_calls: int = 0
    store_lost: int = 0  # times that the store went out of reach
    store_refused: dict[str, int] = {}  # homes' writes, by Fault name


class PubSubCounters(Struct):
    """Publish/subscribe on this host, in messages."""

    published: int = 0  # handed to whoever wanted them
    unmatched: int = 0  # nobody wanted them
    dropped_full: int = 0  # for a client whose queue was full
    dropped_large: int = 0  # for a client that takes no packets of that size
    expired: int = 0  # in a queue
    wills: int = 0
    retained_refused: int = 0  # as many topics are kept as may be
    refused_filters: int = 0
    sessions_expired: int = 0
    journal_errors: int = 0  # times that the disk refused
    journal_cut_bytes: int = 0  # torn at the end of the journal, cut off at the start


class EventCounters(Struct):
    """What MQTT clients publish, between hosts. Messages count once, however many hosts they go to."""

    streams_opened: int = 0
    streams_received: int = 0
    batches_sent: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    repeated: int = 0  # received before: let go
    sent_again: int = 0  # owed by an earlier run of this host
    dropped: int = 0  # as too much waited to be sent
    bad_batches: int = 0
    shares_alone: int = 0  # times that a shared subscription was served without the word of the coordinator
    shares_gone: int = 0  # messages of shared subscriptions whose last member here had left
    retained_late: int = 0  # hosts that did not say in time what they have retained


class BridgeCounters(Struct):
    """Topics that MQTT and Kafka share."""

    recorded: int = 0  # messages of MQTT clients that became records
    fed: int = 0  # records that MQTT subscribers were fed
    feeds: int = 0  # partitions that were begun to be followed for MQTT subscribers
    feeds_late: int = 0  # times that a SUBACK did not wait for the end of a partition any longer
    feeds_failed: int = 0  # times that a partition could not be read
    feeds_cut: int = 0  # times that retention took records before they were fed
    sent_again: int = 0  # messages that an earlier run had spooled
    dropped: int = 0  # as too much waited for a partition's leader
    refused: dict[str, int] = {}  # messages that can never be recorded, by Fault name


class PubSubLevels(Struct):
    """How much there is now of what belongs to publish/subscribe, as of a few seconds ago."""

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
    connections_refused: int = 0  # closed at once, as no file descriptor was left for them
    bytes_in: int = 0
    bytes_out: int = 0
    filtered_records: int = 0  # that were read, and left out by the filter of who asked
    requests: dict[str, int] = {}  # by request name
    protocol_errors: dict[str, int] = {}  # by reason


class ChannelCounters(Struct):
    """Of the channels to all other hosts."""

    dialled: int = 0
    accepted: int = 0
    opened: int = 0  # connections that were used
    closed: int = 0  # of those
    bytes_in: int = 0
    bytes_out: int = 0
    calls: int = 0
    notices: int = 0
    notices_dropped: int = 0  # the host was not connected, or too much waited
    answered: int = 0  # refusals among them
    failed_unsent: int = 0
    failed_unknown: int = 0  # what became of the call is not known
    requests: int = 0  # of other hosts, notices among them
    faults: int = 0  # requests that were refused
    problems: dict[str, int] = {}  # refused and ended connections, by codec.Problem's names


class FabricCounters(Struct):
    """Of the host's edge of the fabric. Packets are what the wire carries, calls what the kernel did."""

    sent_packets: int = 0
    sent_bytes: int = 0
    send_calls: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    receive_calls: int = 0
    deferred: int = 0  # times that the kernel took nothing more
    dropped_packets: int = 0  # too many waited
    send_errors: dict[str, int] = {}  # by errno name
    refused: dict[str, int] = {}  # packets, by reason: of SegmentFault, of Refused, or of the edge
    offload_refused: int = 0  # paths on which UDP_SEGMENT was given up
    fell_back: int = 0  # hosts that a group was found not to reach
    probes_sent: int = 0
    probes_received: int = 0
    sink_errors: int = 0  # streams left because what is above failed


class StareCounters(Struct):
    """STARE's middleware at this host; copies of the replica controller are counted apart."""

    published: int = 0  # updates of VNFs of this host
    sent_packets: int = 0  # to the network, requests among them
    received_packets: int = 0
    delivered: int = 0  # updates, to each VNF that subscribes
    delivered_here: int = 0  # of those, without the network
    recovered: int = 0  # updates that came by unicast
    lost: int = 0  # updates that nobody has any more
    conflated: int = 0  # updates that a newer one took the place of, as a VNF did not read
    registers: int = 0  # SUB-register, repeats and refreshes among them
    removes: int = 0
    acknowledged: int = 0  # SUB-acks that a request waited for
    unanswered: int = 0  # times that a network was found not to acknowledge
    signals_sent: int = 0
    signals_received: int = 0
    values_dropped: int = 0  # last values let go for want of room
    refused: dict[str, int] = {}  # packets and signals, by reason


class ReplicaCounters(Struct):
    """The replica controller, where this host has it."""

    copies: int = 0  # packets of states; the network carried them for it alone
    updates: int = 0  # put into the backlog
    fetched: int = 0  # of those, got by unicast from a host that had them
    recovered: int = 0  # updates sent to hosts that had missed them
    gone: int = 0  # times that a host asked for what was not there any more
    truncated: int = 0  # updates let go as all had them
    evicted: int = 0  # updates let go for want of room
    queries: int = 0
    vnfs_opened: int = 0
    vnfs_closed: int = 0
    refused: dict[str, int] = {}


class Counters(Struct):
    """All of a daemon's."""

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

    def face(self, name: str) -> FaceCounters:
        return self.faces.setdefault(name, FaceCounters())
