"""`Node`: all of STARE at one host, without sockets or a clock.

    node.open(token, now)                     # a VNF; `Output.opened` gives its id
    node.subscribe(vnf, state, now); node.unsubscribe(vnf, state, now)
    number = node.publish(vnf, state, value, now)
    node.close(vnf, now)

    node.datagram(data, now)                  # from UDP port 65432
    node.signal(data, now)                    # from the replica controller
    node.controller_changed(now)              # a new or restarted one: everything is announced again
    node.work(now); node.next_deadline()

The node collects its output in the lists of `Output`, which `take` empties. An update goes directly to the
VNFs of this host, and once to the network. Each VNF gets each publisher's updates of a state in order and
once, starting with the last one at its subscription. The replica controller supplies what the network lost.
"""

from __future__ import annotations

import enum

from treecast.middleware.model.counters import StareCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.stare import (
    HEADER_SIZE,
    StareError,
    StareHeader,
    StareKind,
    check_state,
    decode_header,
    encode_header,
)
from treecast.middleware.wire.stare_signals import (
    Closed,
    ReportFlag,
    Signal,
    SignalError,
    SignalKind,
    Span,
    Update,
    decode_signal,
    encode_signal,
)
from treecast.middleware.wire.stare_updates import TooLargeError, cut, largest

from .announcements import About, Announcements
from .output import Batch, Output, Packet, Unknown
from .published import Pair, PublishedStates
from .received import Received
from .replica import Refusal
from .settings import StareSettings
from .subscriptions import Subscriptions, SubState
from .timers import Random


class Node:
    """STARE's state of one host. The methods for VNFs raise TreecastError."""

    def __init__(
        self, settings: StareSettings, random: Random, counters: StareCounters, *, networked: bool = True
    ) -> None:
        """`networked`: whether there is a network; without one, updates stay on the host."""
        self.output = Output()
        self.counters = counters
        self.settings = settings
        self._networked = networked
        self._subscriptions = Subscriptions(settings, random)
        self._received = Received(settings, random)
        self._published = PublishedStates(settings)
        self._announcements = Announcements(settings, random)
        self._subscribers: dict[int, set[int]] = {}  # VNFs of this host, by state
        self._publishers: dict[int, set[int]] = {}  # the same, including closed VNFs
        # by VNF: first number, subscribed states, published states
        self._vnfs: dict[int, tuple[int, set[int], set[int]]] = {}
        self._ends: dict[int, int] = {}  # end numbers of closed VNFs, until the controller acknowledges
        self._others: set[int] = set()  # states that a controller or carrier here wants from the network

    # --- for inspection

    @property
    def states(self) -> int:
        """The number of subscribed states."""
        return len(self._subscribers)

    @property
    def vnfs(self) -> int:
        return len(self._vnfs)

    @property
    def largest(self) -> int:
        """The size of the largest possible state in bytes."""
        return largest(self.settings.segment_bytes)

    @property
    def unsettled(self) -> int:
        """The number of announcements that the replica controller has not answered."""
        return len(self._announcements)

    def subscription(self, state: int) -> SubState | None:
        """Returns the state of the subscription with the switch; None if there is none."""
        return self._subscriptions.state(state)

    def announced(self, state: int) -> bool:
        """Whether the replica controller knows that this host subscribes."""
        return self._announcements.settled(About.WANT, state)

    def values(self, state: int) -> list[Update]:
        """Returns the last update of each VNF that publishes the state, as far as known here."""
        return [*self._received.lasts(state), *self._own_lasts(state)]

    def take(self) -> Output:
        """Returns the collected output and empties it."""
        subscriptions = self._subscriptions
        for header in subscriptions.requests:
            self.output.packets.append(Packet(header.kind, header.state, encode_header(header)))
            if header.kind is StareKind.SUB_REGISTER:
                self.counters.registers += 1
            else:
                self.counters.removes += 1
        for change in subscriptions.changes:
            self.counters.unanswered += change.state is SubState.UNANSWERED
        self.output.changes += subscriptions.changes
        subscriptions.requests.clear()
        subscriptions.changes.clear()
        output, self.output = self.output, Output()
        self.counters.sent_packets += len(output.packets)
        self.counters.signals_sent += len(output.signals)
        self.counters.delivered += len(output.deliveries)
        self.counters.values_dropped = self._received.values_dropped
        return output

    def farewell(self) -> list[Packet]:
        """Returns the packets that notify the switch that the host leaves."""
        headers = self._subscriptions.farewell()
        return [Packet(header.kind, header.state, encode_header(header)) for header in headers]

    # --- VNFs

    def open(self, token: int, now: float) -> None:
        """Requests an id for a new VNF. The caller chooses `token`, which must not be in use."""
        if len(self._vnfs) >= self.settings.most_vnfs:
            raise TreecastError(
                Fault.POLICY_VIOLATION, f"this host's limit of {self.settings.most_vnfs} VNFs is reached"
            )
        self._announcements.tell(About.OPEN, token, now)

    def abandon(self, token: int, now: float) -> None:
        """Stops waiting for a VNF's id. An id that arrives later is given back."""
        self._announcements.answered(About.OPEN, token)

    def close(self, vnf: int, now: float) -> None:
        """Closes a VNF. Ends its subscriptions; keeps its updates until the controller has them."""
        first, subscribed, published = self._vnfs[vnf]
        for state in list(subscribed):
            self.unsubscribe(vnf, state, now)
        end = first
        for state in published:
            found = self._published.get((state, vnf))
            end = max(end, found.end if found is not None else 0)
        del self._vnfs[vnf]
        for state in published:
            self._let_go((state, vnf))
        self._ends[vnf] = end
        self._announcements.tell(About.CLOSED, vnf, now)

    def subscribe(self, vnf: int, state: int, now: float) -> None:
        """Subscribes a VNF, which gets the state's last values and all later updates.

        Raises INVALID_REQUEST for an invalid state id, POLICY_VIOLATION for too many subscribed states.
        """
        self._check(state)
        subscribers = self._subscribers.get(state)
        if subscribers is None:
            if len(self._subscribers) >= self.settings.most_states:
                raise TreecastError(Fault.POLICY_VIOLATION, "too many states are subscribed on this host")
            subscribers = self._subscribers[state] = set()
            self._announcements.tell(About.WANT, state, now)
            if self._networked and state not in self._others:
                self._subscriptions.want(state, now)
        elif vnf in subscribers:
            return
        for update in self.values(state):
            if update.vnf != vnf:
                self.output.deliveries.append((vnf, update))
        subscribers.add(vnf)
        self._vnfs[vnf][1].add(state)

    def unsubscribe(self, vnf: int, state: int, now: float) -> None:
        """Unsubscribes a VNF and drops its deliveries not yet taken. Does nothing if it is not subscribed."""
        subscribers = self._subscribers.get(state)
        if subscribers is None or vnf not in subscribers:
            return
        subscribers.remove(vnf)
        waiting = self.output.deliveries
        if waiting:
            waiting[:] = [one for one in waiting if one[0] != vnf or one[1].state != state]
        self._vnfs[vnf][1].discard(state)
        if subscribers:
            return
        del self._subscribers[state]
        self._announcements.answered(About.WANT, state)
        self.output.signals.append(encode_signal(Signal(SignalKind.UNWANT, numbers=(state,))))
        if state not in self._others:
            self._subscriptions.unwant(state, now)
        self._received.forget(state)
        for owner in list(self._publishers.get(state, ())):
            self._let_go((state, owner))

    def publish(self, vnf: int, state: int, value: bytes, now: float) -> int:
        """Publishes an update and returns its number.

        Raises INVALID_REQUEST for an invalid state id, BATCH_TOO_LARGE for a value that is too large,
        POLICY_VIOLATION for too many published states.
        """
        self._check(state)
        first, _, published = self._vnfs[vnf]
        pair = state, vnf
        found = self._published.get(pair)
        number = found.end if found is not None else first
        try:
            # Cut first, so that a value that is too large changes nothing.
            datagrams = cut(state, vnf, number, value, self.settings.segment_bytes)
        except TooLargeError as error:
            raise TreecastError(Fault.BATCH_TOO_LARGE, str(error)) from error
        if found is None:
            if len(self._published) >= self.settings.most_states:
                raise TreecastError(Fault.POLICY_VIOLATION, "too many states are published on this host")
            published.add(state)
            self._publishers.setdefault(state, set()).add(vnf)
        self._published.add(pair, value, first)
        self.counters.published += 1
        if self._networked:
            self.output.packets += [Packet(StareKind.PUBLISH, state, one) for one in datagrams]
        if found is None:
            self._announcements.tell(About.TAIL, pair, now)
        else:
            self._announcements.tell_later(About.TAIL, pair, now)
        self._deliver([Update(state, vnf, number, value)], here=True)
        return number

    def _check(self, state: int) -> None:
        try:
            check_state(state)
        except ValueError as error:
            raise TreecastError(Fault.INVALID_REQUEST, str(error)) from error

    def _deliver(self, updates: list[Update], *, here: bool = False) -> None:
        for update in updates:
            for vnf in self._subscribers.get(update.state, ()):
                if vnf != update.vnf:
                    self.output.deliveries.append((vnf, update))
                    self.counters.delivered_here += here

    def _own_lasts(self, state: int) -> list[Update]:
        found = []
        for vnf in self._publishers.get(state, ()):
            published = self._published.get((state, vnf))
            if published is not None:
                found.append(Update(state, vnf, published.end - 1, published.last))
        return found

    def _let_go(self, pair: Pair) -> None:
        """Drops a closed VNF's updates once the controller has them all and no VNF here subscribes."""
        found = self._published.get(pair)
        if found is None or pair[1] in self._vnfs:
            return
        if found.acknowledged < found.end or pair[0] in self._subscribers:
            return
        self._published.remove(pair)
        self._announcements.answered(About.TAIL, pair)
        owners = self._publishers[pair[0]]
        owners.discard(pair[1])
        if not owners:
            del self._publishers[pair[0]]

    # --- other users of a state's packets on this host: the replica controller, the stare carrier

    def want(self, state: int, now: float) -> None:
        """Requests the state's packets from the network, without a subscribing VNF."""
        self._others.add(state)
        if self._networked and state not in self._subscribers:
            self._subscriptions.want(state, now)

    def unwant(self, state: int, now: float) -> None:
        self._others.discard(state)
        if state not in self._subscribers:
            self._subscriptions.unwant(state, now)

    # --- the network

    def datagram(self, data: bytes | memoryview, now: float) -> bool:
        """Takes a packet of any STARE group. Ignores packets with a Treecast segment; the fabric takes them.

        Returns whether it is a PUBLISH of another host.
        """
        self.counters.received_packets += 1
        try:
            header = decode_header(data)
        except StareError:
            self._refuse(Unknown.NO_HEADER)
            return False
        if header.kind is StareKind.PUBLISH:
            return header.vnf > 0 and self._publish_came(header, bytes(data[HEADER_SIZE:]), now)
        if header.kind is not StareKind.SUB_ACK:
            self._refuse(Unknown.STRAY_KIND)
        elif self._subscriptions.acknowledged(header, now):
            self.counters.acknowledged += 1
        else:
            self._refuse(Unknown.STRAY_ACK)
        return False

    def _publish_came(self, header: StareHeader, part: bytes, now: float) -> bool:
        if self._published.get((header.state, header.vnf)) is not None or header.vnf in self._vnfs:
            self._refuse(Unknown.OWN)
            return False
        if header.state in self._subscribers:
            whole = self.announced(header.state)  # the controller has named the publishers so far
            self._came(self._received.receive(header, part, now, whole=whole))
        elif header.state not in self._others:
            self._refuse(Unknown.NOT_SUBSCRIBED)
        return True

    def _came(self, found: list[Update] | Refusal) -> None:
        if isinstance(found, Refusal):
            self._refuse(found)
        else:
            self._deliver(found)

    def _refuse(self, reason: enum.Enum) -> None:
        counted = self.counters.refused
        counted[reason.name] = counted.get(reason.name, 0) + 1

    # --- the replica controller

    def controller_changed(self, now: float) -> None:
        """Announces everything again, to a controller that is new or has lost its state."""
        for state in self._subscribers:
            self._announcements.tell(About.WANT, state, now)
            for pair in self._received.sure(state):  # its publisher may have ended
                self._announcements.tell(About.TAIL, pair, now)
        self._published.forget_acknowledgements()
        for pair in self._published.pairs():
            self._announcements.tell(About.TAIL, pair, now)

    def signal(self, data: bytes | memoryview, now: float) -> None:
        """Takes one signal from the controller."""
        self.counters.signals_received += 1
        try:
            signal = decode_signal(data)
        except SignalError:
            self._refuse(Unknown.NO_SIGNAL)
            return
        match signal.kind:
            case SignalKind.LASTS:
                self._lasts(signal, now)
            case SignalKind.QUERY:
                self._query(signal, now)
            case SignalKind.UPDATE:
                self._updates(signal, now)
            case SignalKind.GONE:
                self._gone(signal, now)
            case SignalKind.RECOVER:
                self._recover(signal)
            case SignalKind.OPENED:
                self._opened(signal, now)
            case SignalKind.CLOSED:
                for closed in signal.closed:
                    self._announcements.answered(About.CLOSED, closed.vnf)
                    self._ends.pop(closed.vnf, None)
            case SignalKind.UNWANT:
                for state in signal.numbers:
                    if state in self._subscribers:  # it crossed a later WANT
                        self._announcements.tell(About.WANT, state, now)
            case _:
                self._refuse(Unknown.STRAY_SIGNAL)

    def _lasts(self, signal: Signal, now: float) -> None:
        for span in signal.spans:
            if span.state in self._subscribers:
                self._announcements.rest(About.WANT, span.state, now)
                if span.vnf and self._published.get((span.state, span.vnf)) is None:
                    self._received.hear(span, now)

    def _query(self, signal: Signal, now: float) -> None:
        reports = [self._report(span, now) for span in signal.spans]
        if reports:
            self.output.signals.append(encode_signal(Signal(SignalKind.REPORT, spans=tuple(reports))))

    def _report(self, span: Span, now: float) -> Span:
        """Returns what this host has of a pair. The controller has all updates before `span.end`."""
        pair = span.state, span.vnf
        wanted = ReportFlag.SUBSCRIBER if span.state in self._subscribers else ReportFlag.NOTHING
        found = self._published.get(pair)
        self._announcements.answered(About.TAIL, pair)
        if found is not None:
            self._published.acknowledge(found, span.end)
            if found.end > span.end:
                self._announcements.tell_later(About.TAIL, pair, now)
            report = Span(*pair, found.first, found.end, ReportFlag.PUBLISHER | wanted)
            self._let_go(pair)
            return report
        if not wanted:
            return Span(*pair, 0, 0, ReportFlag.NOTHING)
        self._received.hear(span, now, whole=self.announced(span.state))
        end = self._received.end(pair) or 0
        return Span(*pair, 0, end, wanted)

    def _updates(self, signal: Signal, now: float) -> None:
        for update in signal.updates:
            if update.state not in self._subscribers:
                self._refuse(Unknown.NOT_SUBSCRIBED)
            elif self._published.get((update.state, update.vnf)) is not None:
                self._refuse(Unknown.OWN)
            else:
                found = self._received.take(update, now)
                self.counters.recovered += not isinstance(found, Refusal)
                self._came(found)

    def _gone(self, signal: Signal, now: float) -> None:
        for span in signal.spans:
            if span.state in self._subscribers:
                found, lost = self._received.gone(span, now)
                self.counters.lost += lost
                self._deliver(found)

    def _recover(self, signal: Signal) -> None:
        """Sends the controller the updates that it lacks, as far as this host has them."""
        batch = Batch(self.output.signals)
        gone = []
        for span in signal.spans:
            pair = span.state, span.vnf
            found, last = self._published.get(pair), self._received.last(pair)
            if found is not None:
                if found.first > span.first:
                    gone.append(Span(*pair, found.first, found.end))
                for number in range(max(span.first, found.first), min(span.end, found.end)):
                    value = found.get(number)
                    if value is not None:
                        batch.add(Update(*pair, number, value))
            elif last is not None and last.number >= span.first:
                if last.number > span.first:
                    gone.append(Span(*pair, last.number, last.number + 1))
                batch.add(last)
        if gone:
            self.output.signals.append(encode_signal(Signal(SignalKind.GONE, spans=tuple(gone))))
        batch.send()

    def _opened(self, signal: Signal, now: float) -> None:
        for opened in signal.opened:
            if self._announcements.answered(About.OPEN, opened.token):
                if opened.vnf and opened.vnf not in self._vnfs:
                    self._vnfs[opened.vnf] = (opened.first, set(), set())
                self.output.opened.append(opened)
            elif opened.vnf and opened.vnf not in self._vnfs and opened.vnf not in self._ends:
                self._ends[opened.vnf] = opened.first  # abandoned: give the id back
                self._announcements.tell(About.CLOSED, opened.vnf, now)

    # --- time

    def work(self, now: float) -> None:
        """Sends what is due."""
        self._subscriptions.work(now)
        spans = self._received.due(now)
        if spans:
            self.output.signals.append(encode_signal(Signal(SignalKind.RECOVER, spans=tuple(spans))))
        for signal in self._announcements.due(now, self._announce):
            self.output.signals.append(encode_signal(signal))

    def _announce(self, about: About, keys: list[int | Pair]) -> Signal:
        kind: SignalKind = about.value
        if about is About.TAIL:
            return Signal(kind, spans=tuple([self._tail(key) for key in keys if isinstance(key, tuple)]))
        numbers = [key for key in keys if isinstance(key, int)]
        if about is About.CLOSED:
            return Signal(kind, closed=tuple([Closed(vnf, self._ends.get(vnf, 0)) for vnf in numbers]))
        return Signal(kind, numbers=tuple(numbers))

    def _tail(self, pair: Pair) -> Span:
        """Returns the span of a pair's updates that are here; an empty span if there are none."""
        found, last = self._published.get(pair), self._received.last(pair)
        if found is not None:
            return Span(*pair, found.first, found.end)
        return Span(*pair, last.number, last.number + 1) if last is not None else Span(*pair, 0, 0)

    def next_deadline(self) -> float:
        """Returns the latest time for the next call of `work`; infinity if no timer is set."""
        return min(
            self._subscriptions.next_deadline(),
            self._received.next_deadline(),
            self._announcements.next_deadline(),
        )

    def check_invariants(self) -> None:
        """For tests."""
        self._subscriptions.check_invariants()
        self._received.check_invariants()
        for vnf, (_, subscribed, published) in self._vnfs.items():
            assert all(vnf in self._subscribers[state] for state in subscribed)
            assert all((state, vnf) in self._published.pairs() for state in published)
        assert all(self._subscribers.values())
