"""`ReplicaController`: a backlog of all states, and what each host lacks of it. Uses no socket and no clock.

  controller.datagram(data, now)            # of states that it subscribes to, including this host's
  controller.signal(host, data, now)
  controller.host_gone(host, now)
  controller.work(now); controller.next_deadline()

`take` returns its pending `Output` and empties it. The controller subscribes to every state that a host wants
or publishes. It requests updates that it missed from the publisher, or from a host that reports to have them.
After an update it queries each subscribing host: QUERY carries the last number, so a lost tail is detected.
Missing updates are recovered; updates that all have reported are truncated, except the last of each VNF and
state.
"""

from __future__ import annotations

import enum
import itertools

from msgspec import Struct, field

from treecast.middleware.fabric.stare.replica import Budget, Refusal
from treecast.middleware.fabric.stare.timers import Random, Timers, Wait
from treecast.middleware.model.counters import ReplicaCounters
from treecast.middleware.wire.stare import HEADER_SIZE, StareError, StareKind, decode_header
from treecast.middleware.wire.stare_signals import (
    MOST_ENTRIES,
    Closed,
    Opened,
    ReportFlag,
    Signal,
    SignalError,
    SignalKind,
    Span,
    Update,
    decode_signal,
    encode_signal,
)

from .pair import Pair
from .settings import ReplicaSettings
from .vnf_ids import VnfIds

Key = tuple[int, int]  # state id, VNF id


class Output(Struct):
    """The controller's pending actions. `opened`: answers that wait until `ids.changes` are stored."""

    signals: list[tuple[int, bytes]] = field(default_factory=list)  # to a host
    wanted: list[int] = field(default_factory=list)  # states to subscribe to
    unwanted: list[int] = field(default_factory=list)
    opened: list[tuple[int, Opened]] = field(default_factory=list)  # to a host

    def send(self, host: int, signal: Signal) -> None:
        self.signals.append((host, encode_signal(signal)))

    def send_spans(self, host: int, kind: SignalKind, spans: list[Span]) -> None:
        for at in range(0, len(spans), MOST_ENTRIES):
            self.send(host, Signal(kind, spans=tuple(spans[at : at + MOST_ENTRIES])))

    def send_updates(self, host: int, updates: list[Update], most_bytes: int) -> None:
        """Sends values in signals of at most `most_bytes`, or of one value that is larger."""
        batch: list[Update] = []
        size = 0
        for update in updates:
            if batch and (size + len(update.value) > most_bytes or len(batch) == MOST_ENTRIES):
                self.send(host, Signal(SignalKind.UPDATE, updates=tuple(batch)))
                batch, size = [], 0
            batch.append(update)
            size += len(update.value)
        if batch:
            self.send(host, Signal(SignalKind.UPDATE, updates=tuple(batch)))


class Trouble(enum.Enum):
    """Reasons for refusals."""

    NO_HEADER = "the STARE header is missing or invalid"
    NO_SIGNAL = "the packet is not a signal"
    STRAY_SIGNAL = "a signal for hosts"
    NO_ROOM = "the limit of VNFs and states is reached"
    NOT_WANTED = "no host subscribes to the state"


class _State:
    """The subscribers of a state, and the VNFs that publish it."""

    __slots__ = ("subscribers", "vnfs")

    def __init__(self) -> None:
        self.subscribers: set[int] = set()
        self.vnfs: set[int] = set()


class ReplicaController:
    """The cluster's one controller."""

    def __init__(
        self,
        settings: ReplicaSettings,
        random: Random,
        counters: ReplicaCounters,
        ids: VnfIds | None = None,
    ) -> None:
        self.output = Output()
        self.ids = ids if ids is not None else VnfIds()
        self.counters = counters
        self.size = 0  # bytes of all backlogs
        self._settings = settings
        self._budget = Budget(settings.pending_bytes)
        self._states: dict[int, _State] = {}
        self._pairs: dict[Key, Pair] = {}
        self._behind: dict[int, dict[Key, None]] = {}  # by host: pairs that it has not completely reported
        self._queries: Timers[int] = Timers()  # of hosts
        self._silent: dict[int, int] = {}  # consecutive queries of a host without an answer
        self._fetches: Timers[Key] = Timers()
        self._closing: Timers[Key] = Timers()
        self._long: dict[Key, None] = {}  # pairs that may hold more than their last update
        self._query_wait = Wait(settings.query_first, settings.query_longest, settings.spread, random)
        self._fetch_wait = Wait(settings.fetch_first, settings.fetch_longest, settings.spread, random)

    # --- for inspection

    @property
    def states(self) -> int:
        return len(self._states)

    @property
    def pairs(self) -> int:
        return len(self._pairs)

    @property
    def updates(self) -> int:
        """The number of updates in all backlogs."""
        return sum(len(pair.backlog) for pair in self._pairs.values())

    def wants(self, state: int) -> bool:
        """Returns whether the controller subscribes to the state."""
        return state in self._states

    def span(self, key: Key) -> tuple[int, int] | None:
        """Returns (first, end) of a backlog."""
        pair = self._pairs.get(key)
        return None if pair is None else (pair.first, pair.end)

    def take(self) -> Output:
        """Returns the pending actions and clears them."""
        output, self.output = self.output, Output()
        return output

    # --- packets

    def datagram(self, data: bytes | memoryview, now: float, *, carried: bool = True) -> None:
        """Handles a packet of a state; ignores packets that are not STARE's own. `carried`: received from the
        network.
        """
        try:
            header = decode_header(data)
        except StareError:
            self._refuse(Trouble.NO_HEADER)
            return
        if header.kind is not StareKind.PUBLISH or not header.vnf:
            return
        self.counters.copies += carried
        if header.state not in self._states:
            self._refuse(Trouble.NOT_WANTED)
            return
        pair = self._pair((header.state, header.vnf), header.update)
        if pair is not None:
            found = pair.replica.receive(header, bytes(data[HEADER_SIZE:]))
            self._took((header.state, header.vnf), pair, found, now)

    def _pair(self, key: Key, first: int, *, based: bool = False) -> Pair | None:
        pair = self._pairs.get(key)
        if pair is not None:
            return pair
        if len(self._pairs) >= self._settings.most_pairs:
            self._refuse(Trouble.NO_ROOM)
            return None
        pair = self._pairs[key] = Pair(first, self._budget, self._settings.window)
        pair.replica.based = based
        self._state(key[0]).vnfs.add(key[1])
        return pair

    def _state(self, state: int) -> _State:
        found = self._states.get(state)
        if found is None:
            found = self._states[state] = _State()
            self.output.wanted.append(state)
        return found

    def _took(self, key: Key, pair: Pair, found: list[tuple[int, bytes]] | Refusal, now: float) -> bool:
        if isinstance(found, Refusal):
            if found is not Refusal.DUPLICATE:
                self._refuse(found)
            found = []
        for number, value in found:
            self.size += pair.backlog.add(number, value)
        self.counters.updates += len(found)
        self._lacking(key, pair, now)
        if found:
            self._truncate(key, pair)
            self._make_room(key, pair)
            for host in self._concerned(key, pair):
                self._fall_behind(host, key, now)
        return bool(found)

    def _lacking(self, key: Key, pair: Pair, now: float) -> None:
        if pair.replica.complete:
            self._fetches.clear(key)
        elif key not in self._fetches:
            self._fetches.set(key, now + self._fetch_wait.after(pair.replica.attempts))

    def _concerned(self, key: Key, pair: Pair) -> set[int]:
        """Returns the hosts to be told how far the controller has come."""
        hosts = set(self._states[key[0]].subscribers)
        if pair.publisher is not None:
            hosts.add(pair.publisher)
        return hosts

    def _fall_behind(self, host: int, key: Key, now: float) -> None:
        self._behind.setdefault(host, {})[key] = None
        if host not in self._queries:
            self._queries.set(host, now + self._query_wait.after(self._silent.get(host, 0)))

    def _refuse(self, reason: enum.Enum) -> None:
        self.counters.refused[reason.name] = self.counters.refused.get(reason.name, 0) + 1

    # --- room

    def _truncate(self, key: Key, pair: Pair) -> None:
        """Truncates to the minimum that all subscribers have reported."""
        subscribers = self._states[key[0]].subscribers
        least = min([pair.reported.get(host, 0) for host in subscribers], default=pair.end)
        updates, size = pair.backlog.truncate(min(least, pair.end))
        self.counters.truncated += updates
        self.size -= size
        if len(pair.backlog) > self._settings.keep:
            self._evict(pair, pair.end - self._settings.keep)

    def _evict(self, pair: Pair, first: int) -> None:
        updates, size = pair.backlog.truncate(first)
        self.counters.evicted += updates
        self.size -= size

    def _make_room(self, key: Key, pair: Pair) -> None:
        """Makes room: evicts updates that are not the last of their pair, then whole pairs, oldest first."""
        limit = self._settings.backlog_bytes
        if len(pair.backlog) > 1:
            self._long[key] = None
        while self.size > limit and self._long:
            first = next(iter(self._long))
            del self._long[first]
            if first in self._pairs:
                self._evict(self._pairs[first], self._pairs[first].end)
        while self.size > limit and len(self._pairs) > 1:
            first = next(iter(self._pairs))
            if first == key:
                self._pairs[key] = self._pairs.pop(key)
            else:
                self._drop(first)

    def _drop(self, key: Key) -> None:
        """Removes a pair and everything known of it."""
        pair = self._pairs.pop(key)
        self.counters.evicted += len(pair.backlog)
        self.size -= pair.backlog.size
        pair.replica.close()
        self._fetches.clear(key)
        self._closing.clear(key)
        for behind in self._behind.values():
            behind.pop(key, None)
        state = self._states[key[0]]
        state.vnfs.discard(key[1])
        self._leave_if_idle(key[0], state)

    def _leave_if_idle(self, number: int, state: _State) -> None:
        if not state.subscribers and not state.vnfs:
            del self._states[number]
            self.output.unwanted.append(number)

    # --- signals

    def signal(self, host: int, data: bytes | memoryview, now: float, run: int = 0) -> None:
        """Handles one signal of a host's run."""
        try:
            signal = decode_signal(data)
        except SignalError:
            self._refuse(Trouble.NO_SIGNAL)
            return
        match signal.kind:
            case SignalKind.WANT:
                self._want(host, signal, now)
            case SignalKind.UNWANT:
                self._unwant(host, signal)
            case SignalKind.TAIL:
                for span in signal.spans:
                    self._tail(host, span, now)
            case SignalKind.REPORT:
                self._reports(host, signal, now)
            case SignalKind.RECOVER:
                self._recover(host, signal)
            case SignalKind.UPDATE:
                for update in signal.updates:
                    self._update(update, now)
            case SignalKind.GONE:
                for span in signal.spans:
                    self._gone(span, now)
            case SignalKind.OPEN:
                for token in signal.numbers:
                    self.output.opened.append((host, self.ids.open(host, token, run)))
                    self.counters.vnfs_opened += 1
            case SignalKind.CLOSED:
                for closed in signal.closed:
                    self._close(host, closed, now)
                self.output.send(host, signal)
            case _:
                self._refuse(Trouble.STRAY_SIGNAL)

    def _want(self, host: int, signal: Signal, now: float) -> None:
        spans = []
        for number in signal.numbers:
            state = self._state(number)
            self._subscribe(host, number, state, now)
            known = [
                Span(number, vnf, pair.first, pair.end)
                for vnf in sorted(state.vnfs)
                if len((pair := self._pairs[number, vnf]).backlog)
            ]
            spans += known or [Span(number, 0, 0, 0)]
        self.output.send_spans(host, SignalKind.LASTS, spans)

    def _subscribe(self, host: int, number: int, state: _State, now: float) -> None:
        state.subscribers.add(host)
        for vnf in state.vnfs:
            pair = self._pairs[number, vnf]
            if pair.reported.get(host, -1) < pair.end:
                self._fall_behind(host, (number, vnf), now)

    def _unwant(self, host: int, signal: Signal) -> None:
        for number in signal.numbers:
            state = self._states.get(number)
            if state is not None:
                self._unsubscribe(host, number, state)
        self.output.send(host, signal)

    def _unsubscribe(self, host: int, number: int, state: _State) -> None:
        state.subscribers.discard(host)
        behind = self._behind.get(host, {})
        for vnf in state.vnfs:
            pair = self._pairs[number, vnf]
            pair.reported.pop(host, None)
            if pair.publisher != host:
                behind.pop((number, vnf), None)
            self._truncate((number, vnf), pair)
        self._leave_if_idle(number, state)

    def _tail(self, host: int, span: Span, now: float) -> None:
        """Handles a host's report that it has these updates, as publisher or receiver. The answer tells how
        far the controller has come.
        """
        key = span.state, span.vnf
        if span.first == span.end:
            return
        pair = self._pair(key, span.first, based=True)
        if pair is None:
            return
        owner = self.ids.host(span.vnf)
        if owner == host:
            pair.publisher = pair.holder = host
        elif pair.publisher is None:
            pair.holder = host
        if owner is None and key not in self._closing:
            self._closing.set(key, now + self._settings.closed)
        self._hear(pair, span.end)
        if owner == host:
            self._begins(pair, span)
        self._took(key, pair, pair.replica.skip(span.first) if not len(pair.backlog) else [], now)
        if pair.replica.complete:
            self._fall_behind(host, key, now)
            self._queries.set(host, now)
        else:
            self._fetches.set(key, now)

    def _begins(self, pair: Pair, span: Span) -> None:
        """Handles the publisher host's report that its updates start at `span.first`, before the first one
        held here.
        """
        if not pair.sure and span.first < pair.first and self._states[span.state].subscribers:
            known = [(number, pair.backlog.get(number)) for number in range(pair.first, pair.end)]
            self.counters.updates -= len(known)
            self.size -= pair.backlog.size
            pair.begin_again(span.first, self._budget, self._settings.window)
            for number, value in known:
                if value is not None:
                    pair.replica.take(number, value)
        pair.sure = True

    def _reports(self, host: int, signal: Signal, now: float) -> None:
        """Handles reports. A host that is far behind is queried again at once, as long as its reports make
        progress.
        """
        self._silent.pop(host, None)
        before = len(self._behind.get(host, ()))
        for span in signal.spans:
            self._report(host, span, now)
        if 0 < len(self._behind.get(host, ())) < before:
            self._queries.set(host, now)

    def _report(self, host: int, span: Span, now: float) -> None:
        key = span.state, span.vnf
        pair = self._pairs.get(key)
        if pair is None:
            return
        state = self._states[span.state]
        behind = self._behind.get(host, {})
        if span.flags & ReportFlag.PUBLISHER:
            pair.publisher = pair.holder = host
            self._hear(pair, span.end)
            self._begins(pair, span)
            self._lacking(key, pair, now)
        elif pair.publisher == host:
            pair.publisher = None
        if span.flags & ReportFlag.SUBSCRIBER:
            if host not in state.subscribers:
                self._subscribe(host, span.state, state, now)
            pair.reported[host] = max(pair.reported.get(host, 0), min(span.end, pair.end))
        elif host in state.subscribers:
            self._unsubscribe(host, span.state, state)
        if span.end > pair.replica.known:
            if pair.publisher is None:
                pair.holder = host
            self._hear(pair, span.end)
            self._lacking(key, pair, now)
        if span.end >= pair.end or not span.flags:
            behind.pop(key, None)
        self._truncate(key, pair)

    @staticmethod
    def _hear(pair: Pair, end: int) -> None:
        pair.backlog.end += pair.replica.hear(end)

    def _recover(self, host: int, signal: Signal) -> None:
        updates: list[Update] = []
        gone = []
        for span in signal.spans:
            pair = self._pairs.get((span.state, span.vnf))
            if pair is None or not len(pair.backlog):
                continue
            first = max(span.first, pair.first)
            if first > span.first and self._is_sure(span.vnf, pair):
                gone.append(Span(span.state, span.vnf, first, max(pair.end, first)))
            for number in range(first, min(max(span.end, first + 1), pair.end)):
                value = pair.backlog.get(number)
                if value is not None:
                    updates.append(Update(span.state, span.vnf, number, value))
        self.counters.gone += len(gone)
        self.output.send_spans(host, SignalKind.GONE, gone)
        self.counters.recovered += len(updates)
        self.output.send_updates(host, updates, self._settings.answer_bytes)

    def _is_sure(self, vnf: int, pair: Pair) -> bool:
        """Returns whether updates missing here are available nowhere, and those up to the end are
        complete.
        """
        return pair.sure or self.ids.host(vnf) is None

    def _update(self, update: Update, now: float) -> None:
        key = update.state, update.vnf
        pair = self._pairs.get(key)
        if pair is not None and self._took(key, pair, pair.replica.take(update.number, update.value), now):
            self.counters.fetched += 1

    def _gone(self, span: Span, now: float) -> None:
        key = span.state, span.vnf
        pair = self._pairs.get(key)
        if pair is not None:
            self._took(key, pair, pair.replica.skip(span.first), now)

    # --- the end of VNFs and hosts

    def _close(self, host: int, closed: Closed, now: float) -> None:
        if self.ids.host(closed.vnf) not in (None, host):
            return
        self._closed(closed.vnf, closed.end, now)

    def _closed(self, vnf: int, end: int, now: float) -> None:
        if not self.ids.close(vnf, end):
            return
        self.counters.vnfs_closed += 1
        for key in self._pairs:
            if key[1] == vnf:
                self._closing.set(key, now + self._settings.closed)

    def host_gone(self, host: int, now: float, run: int | None = None) -> None:
        """Handles a host that left the cluster, or is in another `run`: closes VNFs of earlier runs."""
        for vnf in self.ids.of_host(host, run):
            ends = [pair.replica.known for key, pair in self._pairs.items() if key[1] == vnf]
            # its last updates may not have arrived: skip their numbers
            self._closed(vnf, max(ends, default=0) + self._settings.window, now)
        for number, state in list(self._states.items()):
            if host in state.subscribers:
                self._unsubscribe(host, number, state)
        for pair in self._pairs.values():
            if pair.publisher == host:
                pair.publisher = None
        self._behind.pop(host, None)
        self._queries.clear(host)
        self._silent.pop(host, None)

    # --- time

    def work(self, now: float) -> None:
        """Queries hosts, requests updates missing here, and forgets VNFs that ended long ago."""
        for host in self._queries.due(now):
            self._query(host, now)
        self._fetch(now)
        for key in self._closing.due(now):
            self._drop(key)

    def _query(self, host: int, now: float) -> None:
        behind = self._behind.get(host)
        if not behind:
            self._silent.pop(host, None)
            return
        some = list(itertools.islice(behind, MOST_ENTRIES))
        for key in some:  # those that stay move to the end
            behind[key] = behind.pop(key)
        silent = self._silent.get(host, 0)
        self._silent[host] = silent + 1
        self._queries.set(host, now + self._query_wait.after(silent))
        self.counters.queries += 1
        spans = [
            Span(*key, pair.first, pair.end)
            for key in some
            if len((pair := self._pairs[key]).backlog) and self._is_sure(key[1], pair)
        ]
        self.output.send_spans(host, SignalKind.QUERY, spans)

    def _fetch(self, now: float) -> None:
        by_host: dict[int, list[Span]] = {}
        for key in self._fetches.due(now):
            pair = self._pairs[key]
            missing = pair.replica.missing(self._settings.fetch_at_once)
            if missing is None:
                continue
            pair.replica.attempts += 1
            self._fetches.set(key, now + self._fetch_wait.after(pair.replica.attempts))
            holder = self._holder(key[1], pair)
            if holder is not None:
                by_host.setdefault(holder, []).append(Span(*key, *missing))
        for host, spans in by_host.items():
            self.output.send_spans(host, SignalKind.RECOVER, spans)

    def _holder(self, vnf: int, pair: Pair) -> int | None:
        """Returns the publisher's host, which has what the controller lacks, even if it has not reported so
        yet.

        A subscriber holds only the last update, and is asked if there is no publisher.
        """
        if pair.publisher is not None:
            return pair.publisher
        owner = self.ids.host(vnf)
        return owner if owner is not None else pair.holder

    def next_deadline(self) -> float:
        """Returns the time by which `work` must be called."""
        return min(self._queries.next(), self._fetches.next(), self._closing.next())

    def check_invariants(self) -> None:
        """Checks consistency, for tests."""
        self.ids.check_invariants()
        assert self.size == sum(pair.backlog.size for pair in self._pairs.values())
        for (state, vnf), pair in self._pairs.items():
            pair.replica.check_invariants()
            assert vnf in self._states[state].vnfs
            assert pair.replica.complete or (state, vnf) in self._fetches
            assert not len(pair.backlog) or pair.backlog.end == pair.end
        for number, state_ in self._states.items():
            assert state_.subscribers or state_.vnfs
            assert all((number, vnf) in self._pairs for vnf in state_.vnfs)
        for host, behind in self._behind.items():
            assert all(key in self._pairs for key in behind)
            assert not behind or host in self._queries
