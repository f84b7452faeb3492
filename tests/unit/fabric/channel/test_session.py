"""Sessions joined in memory: handshake, calls, windows, cancelling, pings, bad input, replay."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fabric.channel.pairs import (
    KEY,
    End,
    Pair,
    frames,
    identity,
    open_pair,
    session,
)

from treecast.middleware.fabric.channel.codec import (
    MAX_PAYLOAD,
    Frame,
    Hello,
    Kind,
    Problem,
    encode_frame,
)
from treecast.middleware.fabric.channel.incoming import (
    Answered,
    Cancelled,
    Ended,
    Opened,
    Proven,
    Requested,
)
from treecast.middleware.fabric.channel.outgoing import charge_of
from treecast.middleware.fabric.channel.session import Session
from treecast.middleware.fabric.channel.settings import MAX_METHOD, ChannelSettings
from treecast.middleware.fabric.channel.states import State

SMALL = ChannelSettings(window=64 * 1024, longest=1 << 20)


def requests(end: End) -> list[Requested]:
    return [event for event in end.events if isinstance(event, Requested)]


def answers(end: End) -> list[Answered]:
    return [event for event in end.events if isinstance(event, Answered)]


# --- handshake


@pytest.mark.parametrize("dialled_by", [1, 2])
@pytest.mark.parametrize("key", [KEY, None])
def test_handshake(dialled_by: int, key: bytes | None) -> None:
    pair = open_pair(key=key, dialled_by=dialled_by)
    for end, other in ((pair.dialler, pair.acceptor), (pair.acceptor, pair.dialler)):
        (proven,) = end.of(Proven)
        assert isinstance(proven, Proven)
        assert proven.host_id == other.session._greeting.own.host_id
        assert end.session.state is State.OPEN
        assert len(end.of(Opened)) == (0 if end.session.chooses else 1)
    assert pair.dialler.session.connection == pair.acceptor.session.connection != bytes(8)


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_handshake_and_a_call_in_any_pieces(limit: int) -> None:
    pair = Pair(session(identity(1), 2), session(identity(2)))
    pair.dialler.call(41, b"head", b"body" * 1000)
    moved = True
    while moved:
        moved = False
        for sends, takes in ((pair.dialler, pair.acceptor), (pair.acceptor, pair.dialler)):
            data = sends.data()
            moved = moved or bool(data)
            for start in range(0, len(data), limit):
                takes.take(takes.session.receive(data[start : start + limit], 0.0))
    (request,) = requests(pair.acceptor)
    assert (request.head, bytes(request.body)) == (b"head", b"body" * 1000)


@pytest.mark.parametrize(
    ("dialler", "acceptor", "problem", "found_by_acceptor"),
    [
        (identity(1), identity(2, cluster="other"), Problem.CLUSTER, True),
        (identity(1), identity(3), Problem.WRONG_HOST, True),
        (identity(1, key=b"x" * 32), identity(2), Problem.PROOF, False),
        (identity(1, key=None), identity(2), Problem.AUTHENTICATION, True),
        (identity(1), identity(2, key=None), Problem.AUTHENTICATION, True),
        (identity(1), identity(1), Problem.SELF, True),
    ],
)
def test_refused_handshakes(dialler, acceptor, problem: Problem, found_by_acceptor: bool) -> None:  # type: ignore[no-untyped-def]
    pair = Pair(session(dialler, 2), session(acceptor)).pump()
    finder, other = (pair.acceptor, pair.dialler) if found_by_acceptor else (pair.dialler, pair.acceptor)
    assert (finder.end.problem, finder.end.by_peer) == (problem, False)
    assert (other.end.problem, other.end.by_peer) == (problem, True)
    assert not finder.opened
    assert not other.opened


def test_another_version() -> None:
    pair = Pair(session(identity(1), 2), session(identity(2)))
    ((frame, _),) = frames(pair.dialler.data())
    hello = msgspec.structs.replace(Hello("a cluster", 1, 1, b"n" * 16, 2), version=1).encode()
    pair.acceptor.take(
        pair.acceptor.session.receive(encode_frame(Frame(len(hello), Kind.HELLO)) + hello, 0.0)
    )
    assert frame.kind is Kind.HELLO
    assert pair.acceptor.end.problem is Problem.VERSION
    assert "1 there, 3 here" in str(pair.acceptor.end)


def test_a_proof_is_worth_nothing_elsewhere() -> None:
    """A proof repeated from another handshake is refused, as the other's nonce is new."""
    seen: list[bytes] = []

    def listen(data: bytes, by_dialler: bool) -> bytes:
        if by_dialler and data:
            seen.append(data)
        return data

    Pair(session(identity(1), 2), session(identity(2))).pump(change=listen)
    victim = End(session(identity(2), nonce=b"another nonce..."))
    for data in seen:
        victim.take(victim.session.receive(data, 0.0))
    assert not victim.opened
    assert victim.end.problem is Problem.PROOF


def test_a_proof_sent_back_is_refused() -> None:
    """An acceptor that only mirrors the dialler's bytes does not pass for a host."""
    victim = End(session(identity(1), 2))
    hello = Hello.decode(frames(victim.data())[0][1][20:])
    mirrored = msgspec.structs.replace(hello, host_id=2, to=1).encode()
    data = encode_frame(Frame(len(mirrored), Kind.HELLO)) + mirrored
    data += encode_frame(Frame(32, Kind.PROOF)) + bytes(32)
    victim.take(victim.session.receive(data, 0.0))
    assert victim.end.problem is Problem.PROOF


def test_only_the_lower_host_chooses() -> None:
    pair = Pair(session(identity(2), 1), session(identity(1)))
    pair.dialler.take = pair.dialler.events.extend  # type: ignore[method-assign]
    pair.acceptor.take = pair.acceptor.events.extend  # type: ignore[method-assign]
    pair.pump()
    assert pair.dialler.session.state is pair.acceptor.session.state is State.CHOICE
    with pytest.raises(ValueError, match="cannot be chosen"):
        pair.dialler.session.open()
    pair.dialler.session._frames.control(Kind.OPEN, 0, 0, 0)
    pair.pump()
    assert pair.acceptor.end.problem is Problem.UNEXPECTED


def test_a_duplicate_is_told_with_its_reason() -> None:
    pair = Pair(session(identity(1), 2), session(identity(2)))
    pair.dialler.take = lambda events: pair.dialler.session.end(Problem.DUPLICATE)  # type: ignore[method-assign]
    pair.pump()
    assert (pair.acceptor.end.problem, pair.acceptor.end.by_peer) == (Problem.DUPLICATE, True)


# --- calls


def test_calls_of_a_group_arrive_in_order_and_numbers_have_no_gap() -> None:
    pair = open_pair()
    made = [pair.dialler.call(40 + n % 20, b"%d" % n, bytes(n * 1000)) for n in range(100)]
    pair.pump()
    assert [request.head for request in requests(pair.acceptor)] == [b"%d" % n for n in range(100)]
    assert [call.call for call in made] == list(range(100))


def test_a_small_call_passes_a_large_one_of_another_group() -> None:
    pair = open_pair()
    pair.dialler.call(41, b"large", bytes(20 * MAX_PAYLOAD))
    pair.dialler.call(42, b"behind")
    pair.dialler.call(21, b"small")
    pair.pump(limit=1)
    assert [request.head for request in requests(pair.acceptor)] == [b"small", b"large", b"behind"]


def test_small_answers_pass_large_ones() -> None:
    pair = open_pair()
    for n in range(3):
        pair.dialler.call(41, b"%d" % n)
    pair.pump()
    for request, size in zip(requests(pair.acceptor), (10 * MAX_PAYLOAD, 5 * MAX_PAYLOAD, 10), strict=True):
        pair.acceptor.session.answer(request.call, request.head, bytes(size))
    assert pair.acceptor.session.answers_unsent > 15 * MAX_PAYLOAD
    pair.pump(limit=1)
    assert [answer.head for answer in answers(pair.dialler)] == [b"2", b"1", b"0"]
    assert pair.acceptor.session.answers_unsent == 0


def test_a_refusal_travels() -> None:
    pair = open_pair()
    call = pair.dialler.call(41)
    pair.pump()
    pair.acceptor.session.refuse(0, "NOT_LEADER", "ask host 3")
    pair.pump()
    (answer,) = answers(pair.dialler)
    assert answer.call is call
    assert (answer.refused, answer.head, bytes(answer.body)) == (True, b"NOT_LEADER", b"ask host 3")


def test_an_answer_longer_than_the_other_end_takes() -> None:
    pair = open_pair(SMALL)
    pair.dialler.call(41)
    pair.pump()
    with pytest.raises(ValueError, match="are taken"):
        pair.acceptor.session.answer(0, b"", bytes(SMALL.longest + 1))
    pair.acceptor.session.refuse(0, "INTERNAL", "")
    assert len(answers(pair.pump().dialler)) == 1


def test_answering_twice_sends_once() -> None:
    pair = open_pair()
    pair.dialler.call(41)
    pair.pump()
    pair.acceptor.session.answer(0, b"1", b"")
    pair.acceptor.session.answer(0, b"2", b"")
    pair.acceptor.session.done(0)
    assert [answer.head for answer in answers(pair.pump().dialler)] == [b"1"]


# --- windows


def test_a_slow_handler_bounds_what_arrives() -> None:
    pair = open_pair(SMALL)
    for _ in range(1000):
        pair.dialler.call(41, b"", bytes(1000))
    pair.pump()
    charge = charge_of(1000, SMALL.window)
    assert len(requests(pair.acceptor)) == SMALL.window // charge
    other = pair.dialler.call(61, b"another group")
    pair.pump()
    assert requests(pair.acceptor)[-1].head == b"another group"
    assert other.begun
    for number in range(1001):
        pair.acceptor.session.answer(number, b"", b"")
        pair.pump()
    assert len(answers(pair.dialler)) == 1001
    assert pair.dialler.session._calling.lanes[2].credit == SMALL.window


def test_a_call_larger_than_the_window_comes_alone() -> None:
    pair = open_pair(SMALL)
    pair.dialler.call(41, b"first", bytes(20_000))
    pair.dialler.call(41, b"large", bytes(SMALL.window * 3))
    pair.dialler.call(41, b"last", bytes(20_000))
    assert [request.head for request in requests(pair.pump().acceptor)] == [b"first"]
    pair.acceptor.session.answer(0, b"", b"")
    assert [request.head for request in requests(pair.pump().acceptor)] == [b"first", b"large"]
    pair.acceptor.session.answer(1, b"", b"")
    assert requests(pair.pump().acceptor)[-1].head == b"last"


def test_notices_give_their_window_back() -> None:
    pair = open_pair(SMALL)
    for n in range(500):
        pair.dialler.call(41, b"%d" % n, bytes(1000), Kind.NOTICE)
    done = 0
    pair.pump()
    assert len(requests(pair.acceptor)) < 100
    while done < len(requests(pair.acceptor)):
        pair.acceptor.session.done(requests(pair.acceptor)[done].call)
        done += 1
        pair.pump()
    assert [request.head for request in requests(pair.acceptor)] == [b"%d" % n for n in range(500)]
    assert pair.dialler.session.in_flight == pair.acceptor.session.handling == 0
    assert pair.dialler.session._calling.lanes[2].credit == SMALL.window


def test_who_does_not_keep_to_the_window_is_refused() -> None:
    pair = open_pair(SMALL)
    pair.dialler.session._calling.lanes[2].credit = 1 << 30
    for _ in range(100):
        pair.dialler.call(41, b"", bytes(1000))
    pair.pump()
    assert pair.acceptor.end.problem is Problem.WINDOW


def test_credit_that_was_never_taken_is_refused() -> None:
    pair = open_pair(SMALL)
    pair.acceptor.session._frames.control(Kind.CREDIT, 2, 0, 1)
    pair.pump()
    assert pair.dialler.end.problem is Problem.WINDOW


# --- cancelling


def test_cancelling_before_during_and_after_sending() -> None:
    pair = open_pair()
    waiting = pair.dialler.call(41, b"waiting")
    pair.dialler.queue.forget(waiting)
    large = pair.dialler.call(41, b"large", bytes(10 * MAX_PAYLOAD))
    pair.acceptor.take(pair.acceptor.session.receive(pair.dialler.data(1), 0.0))
    pair.dialler.session.cancel(large)
    sent = pair.dialler.call(42, b"sent")
    pair.pump()
    assert [request.head for request in requests(pair.acceptor)] == [b"sent"]
    pair.dialler.session.cancel(sent)
    pair.pump()
    (cancelled,) = pair.acceptor.of(Cancelled)
    assert isinstance(cancelled, Cancelled)
    assert cancelled.call == sent.call
    assert pair.dialler.session.in_flight == 1  # its share of the window is still in use
    pair.acceptor.session.answer(sent.call, b"too late", b"")
    pair.pump()
    assert not answers(pair.dialler)
    assert pair.dialler.session.in_flight == pair.acceptor.session.handling == 0
    assert pair.dialler.session._calling.lanes[2].credit == ChannelSettings().window


def test_cancelling_while_the_answer_comes() -> None:
    pair = open_pair()
    call = pair.dialler.call(41)
    other = pair.dialler.call(42)
    pair.pump()
    pair.acceptor.session.answer(call.call, b"", bytes(50 * MAX_PAYLOAD))
    pair.dialler.take(pair.dialler.session.receive(pair.acceptor.data(1), 0.0))
    pair.dialler.session.cancel(call)
    pair.acceptor.take(pair.acceptor.session.receive(pair.dialler.data(), 0.0))
    assert pair.acceptor.session.answers_unsent == 0
    pair.acceptor.session.answer(other.call, b"other", b"")
    pair.pump()
    assert [answer.head for answer in answers(pair.dialler)] == [b"other"]
    assert pair.dialler.session.in_flight == 0
    assert not pair.dialler.session._calling.parts


def test_cancelling_crosses_the_answer() -> None:
    pair = open_pair()
    call = pair.dialler.call(41)
    pair.pump()
    pair.acceptor.session.answer(call.call, b"crossing", b"")
    answer = pair.acceptor.data()
    pair.dialler.session.cancel(call)
    pair.acceptor.take(pair.acceptor.session.receive(pair.dialler.data(), 0.0))
    pair.dialler.take(pair.dialler.session.receive(answer, 0.0))
    pair.pump()
    assert not answers(pair.dialler)
    assert pair.dialler.session.in_flight == pair.acceptor.session.handling == 0
    assert not pair.dialler.of(Ended)
    assert not pair.acceptor.of(Ended)


# --- pings


def test_pings_measure_the_round_trip() -> None:
    pair = open_pair()
    for _ in range(10):
        pair.now += 1.0
        assert not pair.dialler.session.tick(pair.now)
        ping = pair.dialler.data()
        pair.now += 0.25
        pair.acceptor.take(pair.acceptor.session.receive(ping, pair.now))
        pair.dialler.take(pair.dialler.session.receive(pair.acceptor.data(), pair.now))
        pair.acceptor.session.tick(pair.now)
    assert pair.dialler.session.round_trip == pytest.approx(0.25)


def test_silence_ends_a_connection() -> None:
    pair = open_pair()
    made = pair.dialler.session
    assert made.next_deadline() == 0.0  # the first ping
    assert not made.tick(0.0)
    assert made.next_deadline() == 1.0
    times = [n * 0.25 for n in range(1, 13)]
    events = [event for now in times for event in made.tick(now)]
    assert made.state is State.CLOSED
    (ended,) = events
    assert isinstance(ended, Ended)
    assert ended.problem is Problem.SILENT


def test_a_flood_of_pings_gets_one_answer_a_turn() -> None:
    pair = open_pair(key=None)
    for stamp in range(10_000):
        pair.acceptor.session.receive(encode_frame(Frame(0, Kind.PING, 0, stamp, 0, 0)), 0.0)
    ((pong, _),) = frames(pair.acceptor.data(), tag=0)
    assert (pong.kind, pong.call) == (Kind.PONG, 9999)


def test_who_stood_still_itself_does_not_blame_the_other() -> None:
    made = open_pair().dialler.session
    assert not made.tick(100.0)
    assert made.state is State.OPEN
    ended = [event for n in range(1, 20) for event in made.tick(100.0 + n * 0.25)]
    assert len(ended) == 1


def test_a_handshake_has_its_time() -> None:
    made = session(identity(2))
    assert made.next_deadline() == 3.0
    (ended,) = [event for n in range(20) for event in made.tick(n * 0.25)]
    assert isinstance(ended, Ended)
    assert ended.problem is Problem.HANDSHAKE


# --- bad input


def traffic() -> tuple[Pair, list[bytes]]:
    """Makes an open pair, and frames of the dialler that the acceptor has not seen."""
    pair = open_pair()
    for n in range(5):
        pair.dialler.call(41, b"%d" % n, b"body")
    return pair, [data for _, data in frames(pair.dialler.data())]


@pytest.mark.parametrize(
    "change",
    [
        lambda f: [f[0], f[0], *f[1:]],  # repeated
        lambda f: f[1:],  # left out
        lambda f: [f[1], f[0], *f[2:]],  # reordered
        lambda f: [f[0][:-1] + b"!", *f[1:]],  # changed payload
        lambda f: [f[0][:30] + b"!" + f[0][31:], *f[1:]],  # changed tag
        lambda f: [f[0][:6] + b"\0\x2b" + f[0][8:], *f[1:]],  # another method
    ],
    ids=["repeated", "left out", "moved", "payload", "tag", "method"],
)
def test_changed_traffic(change: Callable[[list[bytes]], list[bytes]]) -> None:
    pair, sent = traffic()
    pair.acceptor.take(pair.acceptor.session.receive(b"".join(change(sent)), 0.0))
    assert pair.acceptor.end.problem in (Problem.FORGED, Problem.UNEXPECTED)
    assert len(requests(pair.acceptor)) <= 1


def test_frames_of_another_connection() -> None:
    pair, sent = traffic()
    other = open_pair(dialled_by=2)
    other.acceptor.take(other.acceptor.session.receive(b"".join(sent), 0.0))
    assert other.acceptor.end.problem is Problem.FORGED
    pair.dialler.take(pair.dialler.session.receive(b"".join(sent), 0.0))  # reflected to their sender
    assert pair.dialler.end.problem is Problem.FORGED


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (Frame(0, Kind.CALL, 41, 5, 0, 0), Problem.UNEXPECTED),  # a skipped number
        (Frame(0, Kind.CALL, MAX_METHOD + 1, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.CALL, 41, 0, 0, 1), Problem.ENCODING),
        (Frame(0, Kind.CALL, 41, 0, 2**32 - 1, 2**32 - 1), Problem.LENGTH),
        (Frame(MAX_PAYLOAD, Kind.NOTICE, 41, 0, 0, SMALL.longest + 1), Problem.LENGTH),
        (Frame(0, Kind.ANSWER, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.REQUEST_MORE, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.ANSWER_MORE, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.DROPPED, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.CREDIT, 99, 0, 0, 0), Problem.WINDOW),
        (Frame(0, Kind.PONG, 0, 1, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.OPEN, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.HELLO, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(0, Kind.REFUSE, 0, 0, 0, 0), Problem.UNEXPECTED),
        (Frame(MAX_PAYLOAD, Kind.GOODBYE, 0, 0, 0, 0), Problem.LENGTH),
    ],
)
def test_frames_without_a_place(frame: Frame, problem: Problem) -> None:
    """The sender knows the key, or authentication is off."""
    pair = open_pair(SMALL, key=None)
    victim = pair.acceptor
    victim.take(victim.session.receive(encode_frame(frame) + bytes(frame.length), 0.0))
    assert victim.end.problem is problem
    assert not requests(victim)
    pair.pump()
    assert (pair.dialler.end.problem, pair.dialler.end.by_peer) == (problem, True)


def test_a_cancel_of_what_is_over_changes_nothing() -> None:
    pair = open_pair(key=None)
    data = encode_frame(Frame(0, Kind.CANCEL, 0, 77, 0, 0))
    assert pair.acceptor.session.receive(data, 0.0) == []


def test_announced_bytes_cost_nothing_until_they_come() -> None:
    """The first frame of a large message allocates a small multiple of the bytes that have arrived."""
    pair = open_pair()
    pair.dialler.call(41, b"", bytes(100 << 20))
    pair.acceptor.take(pair.acceptor.session.receive(pair.dialler.data(1), 0.0))
    (incoming,) = pair.acceptor.session._serving.parts.values()
    assert incoming.size == 100 << 20
    pair.acceptor.take(pair.acceptor.session.receive(pair.dialler.data(1), 0.0))
    assert len(incoming._memory) <= 4 * 2 * MAX_PAYLOAD


@settings(max_examples=200)
@given(st.lists(st.binary(min_size=1, max_size=80), max_size=10), st.sampled_from(["new", "open", "plain"]))
def test_arbitrary_bytes_end_a_session_and_nothing_else(chunks: list[bytes], where: str) -> None:
    victim: Session
    if where == "new":
        victim = session(identity(2))
    else:
        victim = open_pair(key=KEY if where == "open" else None).acceptor.session
    found = [event for chunk in chunks for event in victim.receive(chunk, 0.0)]
    assert sum(isinstance(event, Ended) for event in found) == (victim.state is State.CLOSED)
    assert sum(map(len, victim.data_to_send(1 << 20))) < 4096


@settings(max_examples=200)
@given(st.data())
def test_one_changed_byte_is_found(data: st.DataObject) -> None:
    pair, sent = traffic()
    stream = bytearray(b"".join(sent))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= data.draw(st.integers(1, 255))
    pair.acceptor.take(pair.acceptor.session.receive(stream, 0.0))
    whole = [b"%d" % n for n in range(5)]
    got = [request.head for request in requests(pair.acceptor)]
    assert got == whole[: len(got)]
    assert len(got) < 5
