"""Corners of the core that a whole network seldom reaches."""

from __future__ import annotations

import random

from msgspec.structs import replace

from treecast.middleware.fabric.core.log import Log
from treecast.middleware.fabric.core.peers import Peer, Peers
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.reorder import Progress, Reorder
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PeerState, ReceiverState
from treecast.middleware.fabric.core.timing import Schedule
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Kind, Message, Segment, control, cut
from treecast.middleware.wire.segment_assembly import AssemblyBudget
from treecast.middleware.wire.segment_bodies import (
    Close,
    Expiry,
    Gap,
    Heartbeat,
    Mode,
    Nak,
    Report,
    Skipped,
    Totals,
)

KEY = (1, 7, 1)
SETTINGS = StreamSettings(catch_up_after=100, replay_stall=0.5, silent_after=5.0)


def data(sequence: int, kind: Kind = Kind.DATA, number: int = 0, total: int = 1) -> Segment:
    return Segment(kind, *KEY, sequence, 1, number, total, 1, b"x" * 10)


def receiver() -> Receiver:
    return Receiver(2, KEY, SETTINGS, random.Random(1), 0.0, progress=Progress(0, 0))


def asked(one: Receiver, now: float) -> list[Gap]:
    sent = [segment for out in one.to_send(now) for segment in out.segments()]
    return [gap for one in sent if one.kind is Kind.NAK for gap in Nak.decode(one.payload).gaps]


def replayed_to_the_edge(edge: int) -> tuple[Peers, Peer]:
    peers = Peers(SETTINGS)
    peer = peers.add(2, 0, edge, 0.0)
    assert peer.state is PeerState.CATCHING_UP
    peer.reported = True
    peer.sent = edge
    peer.flight.sent(edge, 5000, 0.0)
    peers.edge_reached(peer)
    return peers, peer


def test_what_is_on_its_way_in_a_replay_is_no_lag() -> None:
    peers, peer = replayed_to_the_edge(1000)
    peer.settle(10, 0.1)
    for behind in (True, False):
        peers.heard(peer, behind, 1000, 0.2, 100)
        assert (peer.state, peer.sent) == (PeerState.LIVE, 1000)


def test_who_has_caught_up_and_falls_behind_is_replayed_to_from_what_it_has() -> None:
    peers, peer = replayed_to_the_edge(1000)
    peers.heard(peer, False, 1000, 0.2, 100)
    peer.settle(10, 0.3)
    peers.heard(peer, True, 1000, 0.3, 100)
    assert (peer.state, peer.sent) == (PeerState.CATCHING_UP, 10)


def test_a_replay_that_stood_still_for_too_long_is_a_lag() -> None:
    peers, peer = replayed_to_the_edge(1000)
    peer.settle(10, 0.1)
    peers.heard(peer, True, 1000, 0.7, 100)
    assert (peer.state, peer.sent, peer.flight.on_way) == (PeerState.CATCHING_UP, 10, 0)


def test_a_silent_receiver_is_heard_again_although_its_clock_restarted() -> None:
    sender = Sender(*KEY, SETTINGS, 0.0)
    sender.add_receiver(2, 0.0, 0)

    def report(stamp: int, now: float) -> PeerState:
        body = Report(Mode.LIVE, 0, 0, 1 << 20, stamp)
        sender.receive(control(Kind.REPORT, *KEY, 2, body.encode()), now)
        peer = sender.peers.get(2)
        assert peer is not None
        return peer.state

    assert report(5_000_000, 0.1) is PeerState.LIVE
    sender.to_send(5.5)
    assert report(1_000, 10.1) is PeerState.CATCHING_UP
    assert report(2_000, 10.2) is PeerState.CATCHING_UP


def test_who_was_silent_is_replayed_to_however_near_it_is() -> None:
    """Live data sent during the silence did not go to this host."""
    peers = Peers(SETTINGS)
    peer = peers.add(2, 50, 50, 0.0)
    peers.silence(5.0)
    assert (peer.state, peers.live) == (PeerState.SILENT, [])
    peers.heard(peer, False, 51, 6.0, 100)
    assert (peer.state, peer.sent) == (PeerState.CATCHING_UP, 50)


def test_an_origin_that_stood_still_gives_its_receivers_time_for_one_more_report() -> None:
    """Their reports wait in its sockets. Silent together, all would be replayed to by unicast."""
    peers = Peers(SETTINGS)
    peer = peers.add(2, 50, 50, 0.0)
    peers.silence(30.0)
    assert (peer.state, peers.live) == (PeerState.LIVE, [2])
    assert peers.next_silence() == 30.0 + SETTINGS.report_idle
    peers.silence(30.0 + SETTINGS.report_idle)
    assert (peer.state, peers.live) == (PeerState.SILENT, [])


def test_while_catching_up_only_what_a_repair_has_passed_is_asked_for() -> None:
    one = receiver()
    one.receive(control(Kind.HEARTBEAT, *KEY, 1, Heartbeat(500, 0).encode()), 0.0)
    assert one.state is ReceiverState.CATCHING_UP
    assert asked(one, 1.0) == []
    one.receive(data(5, Kind.REPAIR), 2.0)
    assert asked(one, 3.0) == [Gap(0, 5)]


def test_falling_behind_again_forgets_where_the_last_replay_was() -> None:
    one = receiver()
    one.receive(data(150, Kind.REPAIR), 0.0)  # far ahead, so the receiver is behind from now on
    assert one.state is ReceiverState.CATCHING_UP
    assert asked(one, 1.0) == []


def test_nothing_is_awaited_behind_the_end_of_a_closed_stream() -> None:
    one = receiver()
    one.receive(control(Kind.CLOSE, *KEY, 1, Close(2).encode()), 0.0)
    one.receive(control(Kind.HEARTBEAT, *KEY, 1, Heartbeat(9, 0).encode()), 0.1)
    assert one.known == 2
    for sequence in range(2):
        one.receive(data(sequence), 0.2)
    assert len(one.take(0.2)) == 2
    assert one.state is ReceiverState.DONE


def test_what_was_here_of_a_skipped_message_is_forgotten_at_once() -> None:
    buffer = Reorder(SETTINGS, AssemblyBudget(1 << 20), 0)
    buffer.add(data(5, total=2), 1.0, 1.0)
    assert len(buffer.assembly) == 1
    buffer.skip(Skipped(5, 6, Expiry.AGE), 1.0)
    assert (len(buffer.assembly), buffer.assembly.used, buffer.next) == (0, 0, 0)


def test_the_short_way_into_the_reorder_buffer_is_the_long_one() -> None:
    """In any order of segments, `add_next` leaves the same state as `add`."""
    luck, short_ways = random.Random(4), 0
    for _ in range(200):
        short, long = (Reorder(SETTINGS, AssemblyBudget(1 << 20), 0) for _ in range(2))
        for _ in range(30):
            sequence = short.known if luck.random() < 0.95 else luck.randrange(40)
            segment = data(
                sequence, luck.choice([Kind.DATA] * 9 + [Kind.REPAIR]), total=luck.choice([1] * 19 + [2])
            )
            taken = short.add_next(segment)
            short_ways += taken
            refused = None if taken else short.add(segment, 1.0, 2.0)
            assert long.add(segment, 1.0, 2.0) is refused
            if luck.random() < 0.5:
                for buffer in (short, long):
                    while buffer.head() is not None:
                        buffer.pop()
            assert (short.next, short.known, short.bytes, len(short), len(short.gaps)) == (
                long.next,
                long.known,
                long.bytes,
                len(long),
                len(long.gaps),
            )
            assert list(short.messages(0, 100)) == list(long.messages(0, 100))
    assert short_ways > 500


def test_nothing_is_left_to_send_where_a_sender_says_that_it_is_quiet() -> None:
    """The shortcuts of `to_send` and `next_deadline` while nothing is due give the same results."""
    quick, plain = (Sender(1, 7, 1, SETTINGS, 0.0) for _ in range(2))
    luck, now, host, alones = random.Random(5), 0.0, 2, 0
    for _ in range(3000):
        now += luck.choice([0.0001, 0.002, 0.02, 0.3])
        what = luck.randrange(8)
        for sender in (quick, plain):
            if what < 5:
                sender.publish(b"x" * 10, 1, now)
            elif what == 5:
                body = Nak((Gap(max(sender.end - 3, 0), sender.end, 0, 0),), 1000)
                sender.receive(control(Kind.NAK, *KEY, host, body.encode()), now)
            elif what == 6 and sender.peers.get(host) is not None:
                report = Report(Mode.LIVE, 0, sender.end, 1 << 20, int(now * 1e6), Totals(sender.end))
                sender.receive(control(Kind.REPORT, *KEY, host, report.encode()), now)
            elif sender.peers.get(host) is None:
                sender.add_receiver(host, now, 0)
        plain._quiet_until = -NEVER
        alone = quick.take_alone(now)
        alones += alone is not None
        short = [] if alone is None else [(segment, None) for segment in cut(alone, quick.mtu, KEY, 1)]
        short += [(segment, out.to) for out in quick.to_send(now) for segment in out.segments()]
        sent = [short, [(segment, out.to) for out in plain.to_send(now) for segment in out.segments()]]
        assert (quick.counters.sent, quick.counters.sent_bytes) == (
            plain.counters.sent,
            plain.counters.sent_bytes,
        )
        assert (quick.sent_to_all, quick.live.on_way) == (plain.sent_to_all, plain.live.on_way)
        assert sent[0] == sent[1]
        plain._quiet_until = -NEVER
        assert quick.next_deadline(now) <= plain.next_deadline(now)
        assert quick.next_deadline(now) > now or plain.next_deadline(now) <= now
    assert alones > 300


def test_what_is_sent_ahead_is_what_would_have_been_sent_with_all_else() -> None:
    settings = replace(SETTINGS, live_step=0)  # the time of the last look at the window makes no difference
    ahead, plain = (Sender(1, 7, 1, settings, 0.0) for _ in range(2))
    luck, now, taken, beside = random.Random(6), 0.0, 0, 0
    for _ in range(3000):
        now += luck.choice([0.0001, 0.002, 0.02])
        what, host = luck.randrange(8), luck.choice([2, 3, 4])
        for sender in (ahead, plain):
            if what < 4:
                sender.publish(b"x" * 3000, 1, now)
            elif what == 4:
                nak = Nak((Gap(max(sender.end - 3, 0), sender.end, 0, 0),), 1000)
                sender.receive(control(Kind.NAK, *KEY, host, nak.encode()), now)
            elif sender.peers.get(host) is None:
                sender.add_receiver(host, now, 0)
            elif host != 4:  # host 4 sends no reports
                mode, next_ = (Mode.CATCHING_UP, sender.end // 2) if host == 3 else (Mode.LIVE, sender.end)
                report = Report(mode, 0, next_, 1 << 20, int(now * 1e6), Totals(next_))
                sender.receive(control(Kind.REPORT, *KEY, host, report.encode()), now)
        message = ahead.take_ahead(now)
        sent = [] if message is None else [(s, None) for s in cut(message, ahead.mtu, KEY, 1)]
        more = [(segment, out.to) for out in ahead.to_send(now) for segment in out.segments()]
        taken += message is not None
        beside += message is not None and bool(more)
        plain_sent = [(segment, out.to) for out in plain.to_send(now) for segment in out.segments()]
        assert sorted(map(repr, sent + more)) == sorted(map(repr, plain_sent))
        assert (ahead.counters.sent, ahead.sent_to_all) == (plain.counters.sent, plain.sent_to_all)
        assert ahead.next_deadline(now) == plain.next_deadline(now)
    assert taken > 150
    assert beside > 20


def test_what_all_had_before_a_bound_took_more_is_told_as_size() -> None:
    log = Log(0, 1 << 20, 10.0)
    for at in range(4):
        log.append(Message(log.end, 2, b"x"), float(at))
    log.trim(2)
    log.expire(11.0)
    assert list(log.entries(0, 5))[:2] == [Skipped(0, 2, Expiry.SIZE), Skipped(2, 4, Expiry.AGE)]
    assert log.trimmed(1) == {Expiry.SIZE: 1, Expiry.AGE: 2}


def test_a_schedule_is_that_of_a_plain_dictionary() -> None:
    schedule, plain, luck = Schedule(), dict[int, float](), random.Random(3)
    now = 0.0
    for _ in range(5000):
        number = luck.randrange(20)
        match luck.randrange(5):
            case 0:
                now += luck.random()
                assert sorted(schedule.due(now)) == sorted(n for n, at in plain.items() if at <= now)
                plain = {n: at for n, at in plain.items() if at > now}
                assert schedule.first > now
            case 1:
                schedule.discard(number)
                plain.pop(number, None)
            case 2:
                schedule.set(number, NEVER)
                plain.pop(number, None)
            case _:
                at = now + luck.choice([0.0, 0.5, luck.random() * 3])
                schedule.set(number, at)
                plain[number] = at
        assert schedule.first <= min(plain.values(), default=NEVER)


def test_who_says_that_it_has_no_room_is_replayed_to_all_the_same() -> None:
    """Its buffer is full of data beyond the gap. Host and sender would wait for each other."""
    peer = Peers(SETTINGS).add(2, 0, 1000, 0.0)
    peer.room = 0
    assert peer.may_replay == SETTINGS.replay_least
    peer.flight.sent(10, SETTINGS.replay_least, 0.0)
    assert peer.may_replay == 0
