"""What operators may set of a stream. Times are seconds, sizes bytes, rates bytes per second."""

from __future__ import annotations

from msgspec import Struct

NEVER = float("inf")


class StreamSettings(Struct, frozen=True):
    """One object for both ends; each reads its own part, so that a host has one set of settings."""

    mtu: int = 1400  # of a segment with its header; all of a stream's segments are cut by it
    catch_up_after: int = 100_000  # records behind: more than one burst; then a receiver is replayed to
    catch_up_bytes: int = 4 << 20  # and bytes, as far as records are like those before

    # --- sender
    rate: float = NEVER  # live data, at most
    burst: int = 256 * 1024
    send_at_once: int = 256 * 1024  # live bytes of one turn, of all streams together
    live_window: int = 4 << 20  # bytes on their way to all, at most; each receiver has its own below it
    live_first: int = 64 * 1024  # at first; it opens with what arrives, and falls with losses and queues
    live_least: int = 32 * 1024
    live_step: int = 64 * 1024  # less is not sent while as much is on its way, and not ...
    live_steps: int = 4  # ... less than this part of the window
    live_before: int = 256 * 1024  # that goes to each by unicast while a group is being formed
    live_delay: float = 0.01  # seconds that live data may wait in queues on its way
    live_reports: int = 4  # that a receiver sends of what fills its window
    slow_share: float = 0.6  # of the time that others wait for one receiver alone, and it leaves the group
    slow_over: float = 0.4  # seconds over which that share is taken
    slow_times: float = 3.0  # as long as to most others something has to take to it
    quiet_after: float = (
        0.3  # seconds without a report of what is on its way to it, and it leaves the group too
    )
    slow_out: float = 0.2  # seconds that it stays out at least, and twice as long each time ...
    slow_out_longest: float = 5.0
    slow_again: float = 10.0  # ... that it leaves within so long of the last time
    repair_rate: float = 400e6  # repairs and replay together
    repair_burst: int = 1 << 20
    unsent_bytes: int = 4 << 20  # what may wait for `rate`; more is not taken
    log_bytes: int = 64 << 20
    log_age: float = 3600.0
    retain_bytes: int = 0  # what is kept for late joiners even when all have it
    multicast_at: int = 3  # this many askers get one repair by multicast
    aggregation: float = 0.5  # round trips that a repair waits for more askers
    replay_window: int = 4 << 20  # unreported bytes of replay in flight to one receiver, at most
    replay_first: int = 128 * 1024  # at first; it grows with what arrives, and shrinks with losses
    replay_least: int = 32 * 1024
    replay_at_once: int = 32 * 1024  # of one turn, and as much of repairs: others wait for no more (`turn`)
    replay_delay: float = 0.002  # that a replay may wait in queues on its way, where others wait behind it
    replay_by_holders: int = 1 << 20  # bytes that one lacks, and another receiver that has them replays them
    replay_stall: float = 0.5  # without progress for so long, or a time-out, replay begins again
    replay_stall_longest: float = 8.0  # the time doubles each time
    heartbeat_first: float = 0.01  # after the last segment; doubles
    heartbeat_longest: float = 1.0
    announce_every: float = 5.0
    silent_after: float = 5.0  # a receiver that has not reported for so long counts as silent

    # --- receiver
    buffer_bytes: int = 8 << 20  # out of order, or not yet taken
    buffer_messages: int = 8192
    assembly_bytes: int = 4 << 20  # incomplete messages, beside one of any size
    message_bytes: int = 48 << 20  # of one message; larger ones are refused as OVERSIZED, and settled so
    round_trip: float = 0.01  # taken for granted until one is measured
    nak_spread: float = 0.5  # round trips over which the first naks of receivers are spread
    nak_longest: float = 0.5  # between naks of the same, or a time-out where that is longer
    patience: float = 0.02  # before live data is asked for that nothing has overtaken
    report_every: float = 0.05  # while records come
    report_bytes: int = (
        128 * 1024
    )  # arrived since the last report: then at once; the origin may ask for others
    report_replayed: int = 32 * 1024  # the same while it is replayed to
    report_idle: float = 1.0
    hold_bytes: int = 0  # delivered messages kept to repair for others when the origin is gone
    orphaned_after: float = 3.0  # without a word from the origin
    give_up_after: float = 60.0  # orphaned, with a gap that nobody fills

    def __post_init__(self) -> None:
        """One lost segment must not look like silence."""
        if self.silent_after <= 2 * self.report_idle:
            raise ValueError("silent_after has to be more than twice report_idle")
        if self.orphaned_after <= 2 * self.heartbeat_longest:
            raise ValueError("orphaned_after has to be more than twice heartbeat_longest")
