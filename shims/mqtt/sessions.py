"""All sessions of a daemon by user and client id: resumption, takeover, expiry and wills.

A client id belongs to its user: of two users with the same id each has a session, and neither can take over
the other's. Without passwords there are no users, and the name that a client gives does not count. Sessions
are local to the daemon: the same id on two hosts names two sessions.
"""

from __future__ import annotations

from typing import Final, Protocol

from treecast.middleware.broker.access import Identities
from treecast.middleware.broker.pubsub import (
    NEVER,
    Creditor,
    Message,
    PubSub,
    Subscriber,
    Subscription,
    WillRecord,
)
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.budget import unbounded
from treecast.middleware.model.timers import Due
from treecast.shims.identified import secret_of
from treecast.shims.log_ins import Checks, Immediate
from treecast.shims.passwords import Secret

from . import codec
from .codec import MqttError
from .codec_packets import Connect, Will
from .codec_properties import Properties, write_properties
from .rights import may_write
from .session_connection import ConnectionState
from .session_state import FOREVER, SessionState
from .settings import MqttSettings

AT_ONCE: Final = 16  # filters that are worked through before the work budget is asked
_KEEP_ALIVE_FACTOR: Final = 1.5  # [MQTT-3.1.2-22]
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


class Chooser(Protocol):
    """A source of randomness such as `random.Random`."""

    def choice(self, seq: str) -> str: ...


class Opened:
    """The result of CONNECT. `assigned` is whether the server chose the client id."""

    def __init__(self, state: SessionState, present: bool, assigned: bool) -> None:
        self.state = state
        self.present = present
        self.assigned = assigned


class Sessions:
    """The sessions of one daemon. Deadlines are in seconds on the loop's clock."""

    def __init__(self, hub: PubSub, settings: MqttSettings, rng: Chooser) -> None:
        self.settings = settings
        self.hub = hub
        self.work = unbounded()  # the edge replaces it before the first connection
        self.refused_filters = frozenset([filter.encode() for filter in settings.refused_filters])
        self._rng = rng
        self._states: dict[tuple[str, str], SessionState] = {}  # by user and client id
        self._deadlines: Due[SessionState] = Due()
        self._idle: Due[ConnectionState] = Due()
        self._new: dict[ConnectionState, float] = {}  # deadline for CONNECT, earliest first
        self.connected = 0
        self.maximum = 0
        self.applications = Applications()
        self.log_ins: Checks = Immediate()
        self.identities = Identities()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def full(self) -> bool:
        """Whether the session limit is reached."""
        return len(self._states) >= self.settings.max_sessions

    def knows(self, connect: Connect) -> bool:
        """Whether the client has a session."""
        return self._find(self._user(connect), connect.client_id) is not None

    @property
    def logs_in(self) -> bool:
        """Whether clients have to log in."""
        return self.settings.passwords is not None or self.identities.closed

    def in_password_file(self, user: str) -> bool:
        return self.settings.passwords is not None and user in self.settings.passwords

    def secret(self, user: str, address: str) -> Secret:
        """Returns what is stored of a user's password: in the password file, or else among the identities.
        `address`: where the client comes from.
        """
        passwords = self.settings.passwords
        if passwords is not None and (user in passwords or not self.identities.closed):
            return passwords.secret(user)
        return secret_of(self.identities, user, address)

    def _user(self, connect: Connect) -> str:
        """Returns the user who has logged in, "" if no passwords are asked for."""
        return connect.username or "" if self.logs_in else ""

    def _find(self, user: str, client_id: str) -> SessionState | None:
        """Returns the user's session, or else one of nobody: it was stored before there were passwords, or by
        a version that did not know users, and goes to the first user who connects with its client id."""
        return self._states.get((user, client_id)) or self._states.get(("", client_id))

    def states(self) -> list[SessionState]:
        return list(self._states.values())

    # --- connections

    def open(self, connection: ConnectionState, connect: Connect, now: float) -> Opened:
        """Resumes the client's session or creates one. Disconnects any other client with the same id."""
        self._new.pop(connection, None)
        client_id, user = connect.client_id, self._user(connect)
        assigned = not client_id
        if assigned:
            client_id = self._new_id(user)
        state = self._find(user, client_id)
        if state is not None:
            self._take_over(state, connect.clean_start, now)
        present = state is not None and not connect.clean_start and not state.ended
        if state is None or not present:
            if state is not None:
                self.end(state)
            state = SessionState(self.hub, self.hub.routes.next_serial(), client_id, user)
            self._states[user, client_id] = state
        elif state.will_at and state.will_at <= now:
            self._publish_will(state)  # the will delay passed before the next tick
        if state.user != user:
            self._give(state, user)
        state.output = connection.output
        state.will_at = state.ends_at = 0.0
        self._deadlines.discard(state)
        self.set_expiry(state, self._expiry(connect))
        self._set_will(state, None if connect.will is None else will_record(connect.will))
        self.connected += 1
        self.maximum = max(self.maximum, self.connected)
        self.applications.joined("mqtt", client_id, "")
        return Opened(state, present, assigned)

    def _give(self, state: SessionState, user: str) -> None:
        """Gives a session of nobody to a user."""
        del self._states[state.user, state.client_id]
        state.user = user
        self._states[user, state.client_id] = state
        journal, record = self.hub.journal, state.record
        if journal is not None and record is not None:
            record.user = user
            journal.given(record)

    def _expiry(self, connect: Connect) -> int:
        """Returns the session expiry in seconds. In version 3.1.1 it is either 0 or unlimited."""
        if connect.version == codec.V311:
            wanted = 0 if connect.clean_start else FOREVER
        else:
            wanted = connect.properties.session_expiry or 0
        return min(wanted, self.settings.max_session_expiry)

    def set_expiry(self, state: SessionState, expiry: int) -> None:
        """Sets how many seconds the session lasts without a connection."""
        state.expiry = expiry
        journal = self.hub.journal
        if journal is None:
            return
        record = state.record
        if record is not None:
            record.expiry = expiry
            record.gone_at = 0.0
            journal.changed(record)
        elif expiry:
            state.durable = True
            record = state.record = Creditor(state.serial, state.client_id)
            record.user = state.user
            record.expiry = expiry
            journal.begin(record)

    def _new_id(self, user: str) -> str:
        while True:
            name = "treecast-" + "".join([self._rng.choice(_ALPHABET) for _ in range(14)])
            if self._find(user, name) is None:
                return name

    def _take_over(self, state: SessionState, clean: bool, now: float) -> None:
        """Disconnects the present client of the session [MQTT-3.1.4-3].

        Its will is published unless the session continues before the will delay has passed.
        """
        self.cut_off(state, codec.TAKEN_OVER, "another client took over the session", now)
        if clean:
            self._publish_will(state)

    def cut_off(self, state: SessionState, reason: int, detail: str, now: float) -> None:
        """Ends the connection of a session, if it has one, on behalf of the server."""
        output = state.output
        if output is not None:
            output.disconnect(reason, detail)
            self._detach(state, now, with_will=True)

    def fail(self, connection: ConnectionState, error: MqttError, now: float) -> None:
        """Ends a connection after an error."""
        if connection.refuse(error):
            self.closed(connection, now, with_will=True)

    def closed(self, connection: ConnectionState, now: float, *, with_will: bool) -> None:
        """Handles the end of a connection. Does nothing more if another connection has the session."""
        state = connection.state
        self._idle.discard(connection)
        if state is None:
            self._new.pop(connection, None)
        elif state.output is connection.output:
            self._detach(state, now, with_will=with_will)

    def _detach(self, state: SessionState, now: float, *, with_will: bool) -> None:
        """Handles the end of the connection of a session."""
        self.connected -= 1
        self.applications.left("mqtt", state.client_id, "")
        state.detach()
        if not with_will:
            self._set_will(state, None)
        delay = state.will.delay if state.will is not None else 0
        if state.will is not None and (delay == 0 or state.expiry == 0):
            self._publish_will(state)
        if state.expiry == 0:
            self.end(state)
            return
        self.moved(state)
        if state.will is not None:
            state.will_at = now + delay
        if state.expiry != FOREVER:
            state.ends_at = now + state.expiry
        self._watch(state)
        journal, record = self.hub.journal, state.record
        if journal is not None and record is not None:
            record.gone_at = self.hub.clock.wall
            journal.changed(record)

    def end(self, state: SessionState) -> None:
        """Ends the session: publishes its will and removes its subscriptions and its queue. Other members of
        shared subscriptions are given what its client has not received."""
        if state.ended:
            return
        self._publish_will(state)
        left = state.leave_behind()
        subscriptions, state.subscriptions = state.subscriptions, {}
        for subscription in subscriptions.values():
            subscription.ended = True
        _Clearing(self, state, list(subscriptions.items())).step()
        state.clear()
        del self._states[state.user, state.client_id]
        self._deadlines.discard(state)
        for delivery in left:
            self.hub.shares.hand_on(delivery, delivery.creditor)
        journal, record = self.hub.journal, state.record
        if journal is not None and record is not None:
            journal.end(record)

    def moved(self, state: SessionState) -> None:
        """Tells shared subscriptions that the client has connected, or that it is away."""
        for subscription in state.subscriptions.values():
            if subscription.group is not None:
                self.hub.shares.member_moved(subscription.group)

    def remove(self, state: SessionState, filter: bytes, subscription: Subscription) -> None:
        """Removes a subscription from the hub. `filter` is as the client wrote it."""
        if subscription.group is not None:
            self.hub.shares.unsubscribe(subscription.group.name, state, subscription.filter)
        else:
            self.hub.unsubscribe(state, subscription.filter)

    def adopt(self, state: SessionState, now: float, since: float) -> None:
        """Adds a session restored from the journal.

        Its expiry and its will delay run from the client's disconnection, at `now + since` seconds, with
        `since` 0 or negative.
        """
        self._states[state.user, state.client_id] = state
        if state.will is not None:
            state.will_at = max(now + since + state.will.delay, now)
        if state.expiry != FOREVER:
            state.ends_at = max(now + since + state.expiry, now)
        self._watch(state)

    # --- wills

    def _set_will(self, state: SessionState, will: WillRecord | None) -> None:
        """Sets the will. As session state (5.0, 4.1) it is kept in the journal if the session is."""
        state.will = will
        journal, record = self.hub.journal, state.record
        if journal is not None and record is not None:
            journal.will(record, will)

    def _publish_will(self, state: SessionState) -> None:
        will = state.will
        state.will_at = 0.0
        if will is None:
            return
        self._set_will(state, None)  # in the same journal block as the publish: exactly once after a crash
        if self.identities.closed and not may_write(self.identities, state.user, will.topic):
            self.hub.counters.forbidden += 1
        else:
            publish_will(self.hub, will, state)

    # --- deadlines

    def _watch(self, state: SessionState) -> None:
        if state.will_at or state.ends_at:
            self._deadlines.put(state, min(at for at in (state.will_at, state.ends_at) if at))

    def await_connect(self, connection: ConnectionState, now: float) -> None:
        """Starts the deadline for the CONNECT of a new connection."""
        self._new[connection] = now + self.settings.connect_seconds

    def watch_idle(self, connection: ConnectionState, at: float) -> None:
        """Schedules an idle check of the connection at `at`."""
        self._idle.put(connection, at)

    def look_at_clients(self, now: float) -> None:
        """Handles due deadlines of connections: CONNECT and keep-alives. Part of a CONNECT does not count."""
        for late in [connection for connection, at in self._new.items() if at <= now]:
            unknown = MqttError(codec.KEEP_ALIVE_TIMEOUT, "3.1.4", "no CONNECT received in time")
            self.fail(late, unknown, now)
            self._new.pop(late, None)
        for connection in self._idle.take(now):
            if connection.output.closing:
                continue
            if connection.paused:  # its packets are in the socket: it is not the one that is silent
                connection.last_activity = now
            at = connection.last_activity + connection.idle_seconds
            if at > now:
                self.watch_idle(connection, at)
            else:
                detail = "no packet within one and a half times the keep-alive"
                idle = MqttError(codec.KEEP_ALIVE_TIMEOUT, "MQTT-3.1.2-22", detail)
                self.fail(connection, idle, now)

    def tick(self, now: float) -> None:
        """Handles due deadlines of sessions: delayed wills and expiry."""
        for state in self._deadlines.take(now):
            if state.ended or state.output is not None:
                continue
            if state.will_at and state.will_at <= now:
                self._publish_will(state)
            if state.ends_at and state.ends_at <= now:
                self.hub.counters.sessions_expired += 1
                self.end(state)
            else:
                self._watch(state)  # the will was due before the end


class _Clearing:
    """Removes the subscriptions of a session that has ended, in several passes of the loop if they are many.

    What still matches them in the meantime is dropped, as the session has no client and no queue.
    """

    def __init__(
        self, sessions: Sessions, state: SessionState, subscriptions: list[tuple[bytes, Subscription]]
    ) -> None:
        self._sessions = sessions
        self._state = state
        self._subscriptions = subscriptions

    def step(self) -> None:
        work = self._sessions.work
        while self._subscriptions:
            filter, subscription = self._subscriptions.pop()
            self._sessions.remove(self._state, filter, subscription)
            if len(self._subscriptions) % AT_ONCE == 0 and work.spent():
                work.later(self.step)
                return


def idle_limit(keep_alive: int) -> float:
    """Returns the seconds without a packet after which a client counts as lost, or 0.0 for no limit."""
    return keep_alive * _KEEP_ALIVE_FACTOR


def will_record(will: Will) -> WillRecord:
    """Converts the will of a CONNECT to the form in which it is kept."""
    given = will.properties
    passed_on = Properties(
        payload_format=given.payload_format,
        content_type=given.content_type,
        response_topic=given.response_topic,
        correlation_data=given.correlation_data,
        user=given.user,
    )
    written = write_properties(passed_on)
    size = 1
    while written[size - 1] >= 0x80:
        size += 1
    lives = -1 if given.message_expiry is None else given.message_expiry
    delay = given.will_delay or 0
    return WillRecord(will.topic, will.payload, will.qos, will.retain, written[size:], delay, lives)


def publish_will(hub: PubSub, will: WillRecord, publisher: Subscriber) -> None:
    expires = NEVER if will.lives < 0 else hub.clock.wall + will.lives
    message = Message(will.topic, will.payload, will.qos, will.retain, will.properties, expires)
    hub.counters.wills += 1
    targets = hub.routes.targets(message.topic)
    if message.retain:
        hub.publish_retained(message, targets, publisher)
    else:
        hub.publish(message, targets, publisher)
