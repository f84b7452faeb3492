"""Settings of a stream for operators. Times are in seconds, sizes in bytes, rates in bytes per second."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.timers import NEVER


class StreamSettings(Struct, frozen=True):
    """The settings of both ends; each end reads its own part, so that a host has a single set."""

    mtu: int = 1400  # of a segment including its header; all segments of a stream are cut to it
    catch_up_after: int = 100_000  # records of lag that start a replay; more than one burst
    catch_up_bytes: int = 4 << 20  # the same in bytes, estimated from earlier records

    # --- sender
    rate: float = NEVER  # maximum rate of live data
    burst: int = 256 * 1024
    send_at_once: int = 128 * 1024  # live bytes per turn, of all streams together
    live_window: int = 4 << 20  # maximum bytes in flight to all; each receiver has its own window below it
    live_first: int = 64 * 1024  # initial window; grows with arrivals, shrinks with losses and queues
    live_least: int = 32 * 1024
    live_step: int = 64 * 1024  # while data is in flight, wait until as much may be sent, but ...
    live_steps: int = 4  # ... for no more than the window divided by this
    live_before: int = 256 * 1024  # bytes sent to each receiver by unicast while a group is being formed
    live_delay: float = 0.01  # seconds that live data may wait in queues on its path
    live_reports: int = 4  # reports that a receiver sends per window of data
    slow_share: float = 0.6  # of the time that others wait for one receiver alone; beyond it, it leaves
    slow_over: float = 0.4  # seconds over which that share is measured
    slow_times: float = 3.0  # how many times the present rate most others must be able to take
    quiet_after: float = 0.3  # seconds without a report about data in flight after which it leaves, too
    slow_out: float = 0.2  # minimum seconds that it stays out; doubles each time ...
    slow_out_longest: float = 5.0
    slow_again: float = 10.0  # ... that it leaves again within this time of its return
    repair_rate: float = 400e6  # repairs and replays together
    repair_burst: int = 1 << 20
    unsent_bytes: int = 4 << 20  # maximum data waiting for `rate`; more is refused
    log_bytes: int = 64 << 20
    log_age: float = 3600.0
    retain_bytes: int = 0  # data kept for late joiners even if all receivers have it
    multicast_at: int = 3  # requesters of the same data that get one repair by multicast
    aggregation: float = 0.5  # round trips that a repair waits for more requesters
    replay_window: int = 4 << 20  # maximum unreported bytes of a replay in flight to one receiver
    replay_first: int = 128 * 1024  # initial window; grows with arrivals, shrinks with losses
    replay_least: int = 32 * 1024
    replay_at_once: int = 32 * 1024  # per turn, and as much for repairs: other work waits no longer (`turn`)
    replay_delay: float = 0.002  # that a replay may wait in queues on its path: other traffic waits behind it
    replay_by_holders: int = 1 << 20  # bytes lacking at which another receiver that has them replays them
    replay_stall: float = 0.5  # without progress for this long, or a time-out, the replay restarts
    replay_stall_longest: float = 8.0  # the time doubles each time
    heartbeat_first: float = 0.01  # after the last segment; doubles
    heartbeat_longest: float = 1.0
    announce_every: float = 5.0
    rests: bool = False  # receivers that have all may rest until there are news
    silent_after: float = 5.0  # a receiver that has not reported for this long counts as silent

    # --- receiver
    buffer_bytes: int = 8 << 20  # out of order, or not yet taken
    buffer_messages: int = 8192
    assembly_bytes: int = 4 << 20  # incomplete messages, apart from a single one of any size
    message_bytes: int = 48 << 20  # of one message; larger ones are refused as OVERSIZED and thereby settled
    round_trip: float = 0.01  # assumed until one is measured
    nak_spread: float = 0.5  # round trips over which the receivers' first naks are spread
    nak_longest: float = 0.5  # between naks for the same data, or a time-out if that is longer
    patience: float = 0.02  # before requesting live data that nothing has overtaken
    report_every: float = 0.05  # while records arrive
    report_bytes: int = 128 * 1024  # arrived bytes that trigger a report; the origin may set another value
    report_replayed: int = 32 * 1024  # the same during a replay
    report_idle: float = 1.0
    hold_bytes: int = 0  # delivered messages kept to repair for others if the origin is gone
    orphaned_after: float = 3.0  # without hearing from the origin
    give_up_after: float = 60.0  # as an orphan with a gap that nobody fills

    def __post_init__(self) -> None:
        """Raises ValueError if one lost segment would look like silence."""
        if self.silent_after <= 2 * self.report_idle:
            raise ValueError("silent_after has to be more than twice report_idle")
        if self.orphaned_after <= 2 * self.heartbeat_longest:
            raise ValueError("orphaned_after has to be more than twice heartbeat_longest")
