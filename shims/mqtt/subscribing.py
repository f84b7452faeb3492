"""SUBSCRIBE and UNSUBSCRIBE: registers subscriptions with the hub and sends retained messages."""

from __future__ import annotations

from treecast.middleware.broker import content_filter
from treecast.middleware.broker.pubsub import Message, PubSub, Subscription, SubscriptionRecord, Waiter
from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.wishes import ContentFilter

from . import codec
from .codec import MqttError, protocol_error
from .codec_packets import FilterRequest, Suback, Subscribe, Unsubscribe
from .codec_read import check_filter, split_share
from .rights import TopicRights
from .session_connection import ConnectionState
from .session_state import SessionState
from .sessions import AT_ONCE, Sessions

FILTER = "x-treecast-filter"  # the user property of SUBSCRIBE with a filter on the messages
_REFUSED_311 = 0x80
_KEPT = 256  # retained messages that are handed over before the work budget is asked
_ENDS = (codec.MALFORMED, codec.PROTOCOL_ERROR)  # malformed filters end the connection


class Steps:
    """Work of one packet that may take more than one pass of the loop."""

    def step(self) -> bool:
        """Works until it is done or the work budget is spent. Returns whether it is done.

        Raises MqttError.
        """
        return True


class Grant(Waiter):
    """A pending SUBACK, followed by the retained messages.

    It is sent once recorded topics are being followed and all hosts know the subscriptions.
    """

    def __init__(
        self, connection: ConnectionState, sessions: Sessions, answer: Suback, fresh: list[Subscription]
    ) -> None:
        self._connection = connection
        self._hub = sessions.hub
        self._work = sessions.work
        self._answer = answer
        self._fresh = fresh
        self._asked = 0

    def confirmed(self) -> None:
        """Continues after a confirmation: asks the recorder, then the reach, then sends SUBACK."""
        recorder, reach = self._hub.routes.recorder, self._hub.reach
        if self._asked == 0:
            self._asked = 1
            if recorder is not None and not recorder.known(self):
                return
        if self._asked == 1:
            self._asked = 2
            if not reach.known(self):
                return
        self._send()

    def _send(self) -> None:
        """Sends SUBACK if the client is still connected, then requests retained messages."""
        hub, connection = self._hub, self._connection
        state = connection.state
        if state is None or not connection.has_session:
            return
        connection.output.send(self._answer)
        if not self._fresh:
            return
        kept = Kept(state, hub, self._fresh, self._work)
        if hub.reach.collect([one.filter for one in self._fresh], kept):
            kept.confirmed()


class Kept(Waiter):
    """The retained messages for new subscriptions, sent once those of other hosts have arrived.

    They are the session's: the client has its SUBACK, and gets them queued if it is away meanwhile.
    """

    def __init__(self, state: SessionState, hub: PubSub, fresh: list[Subscription], work: WorkBudget) -> None:
        self._state = state
        self._hub = hub
        self._fresh = fresh[::-1]  # taken from the end
        self._messages: list[Message] = []  # the rest of those for `_subscription`, the first at the end
        self._subscription: Subscription | None = None
        self._work = work
        self._paused = False

    def confirmed(self) -> None:
        """Hands the messages over if the session has not ended, in several passes if they are many."""
        hub, state = self._hub, self._state
        while self._messages or self._fresh:
            if state.ended:
                return
            if not self._messages:
                self._subscription = self._fresh.pop()
                self._messages = hub.retained.match(self._subscription.filter, hub.clock.wall)[::-1]
            if self._subscription is not None and not self._subscription.ended:
                self._hand_over(state, self._subscription, self._messages[-_KEPT:])
            del self._messages[-_KEPT:]
            if (self._messages or self._fresh) and self._work.spent():
                self._paused = True
                self._work.later(self.confirmed)
                return

    def _hand_over(self, state: SessionState, subscription: Subscription, messages: list[Message]) -> None:
        hub = self._hub
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        for message in reversed(messages):
            # Replaced since the last pass: the client has the newer one, and this must not come behind it.
            if self._paused and hub.retained.get(message.topic) is not message:
                continue
            if subscription.wants(message, hub.schemas):
                state.hand_over(message, min(message.qos, subscription.qos), True, identifiers)


def for_bridge(packet: Subscribe) -> Subscribe:
    """Returns what a bridge of version 3.1.1 means: its own messages do not come back, and retained messages
    stay retained, as with Mosquitto. Shared subscriptions have no `no_local`."""
    filters = [
        FilterRequest(one.filter, one.qos, not one.filter.startswith(b"$share/"), True)
        for one in packet.filters
    ]
    return Subscribe(packet.packet_id, tuple(filters), packet.properties)


class Granting(Steps):
    """Subscribes to all valid filters of a SUBSCRIBE, then has it answered."""

    def __init__(
        self, connection: ConnectionState, sessions: Sessions, state: SessionState, packet: Subscribe
    ) -> None:
        identifiers = packet.properties.subscription_ids
        self._connection = connection
        self._sessions = sessions
        self._state = state
        self._packet = packet
        self._identifier = identifiers[0] if identifiers else 0
        self._reasons = bytearray()
        self._fresh: list[Subscription] = []  # those that are to receive retained messages
        self._content: ContentFilter | None = None
        self._fault = ""  # of the filter

    def step(self) -> bool:
        filters, reasons, work = self._packet.filters, self._reasons, self._sessions.work
        if not reasons:
            self._read_content()
        while len(reasons) < len(filters):
            reasons.append(self._reason(filters[len(reasons)]))
            if len(reasons) % AT_ONCE == 0 and work.spent():
                return False
        answer = Suback(codec.SUBACK, self._packet.packet_id, bytes(reasons))
        if self._fault:
            answer = _explained(self._connection, answer, self._fault)
        Grant(self._connection, self._sessions, answer, self._fresh).confirmed()
        return True

    def _read_content(self) -> None:
        """Reads the filter that the packet's subscriptions have, if they have one."""
        texts = [value for name, value in self._packet.properties.user if name == FILTER]
        try:
            if len(texts) > 1:
                raise TreecastError(Fault.INVALID_REQUEST, f"{FILTER} is there twice: join them with 'and'")
            if texts:
                self._content = content_filter(texts[0])
                self._check_fields(self._content)
        except TreecastError as error:
            self._fault = error.detail.partition("\n")[0]  # without the picture of the place

    def _check_fields(self, content: ContentFilter) -> None:
        """Raises INVALID_REQUEST if the filter does not fit the schema of a topic that it is for."""
        schemas = self._sessions.hub.schemas
        for one in self._packet.filters:
            schemas.check(tuple(one.filter.decode(errors="replace").split("/")), content)

    def _reason(self, request: FilterRequest) -> int:
        """Subscribes to one filter and returns its reason code."""
        if self._fault:
            self._sessions.hub.counters.refused_filters += 1
            return codec.IMPLEMENTATION_ERROR
        try:
            subscription, wants_retained = _grant(
                self._sessions, self._state, self._connection.rights, request, self._identifier, self._content
            )
        except MqttError as error:
            if error.reason in _ENDS:
                raise
            self._sessions.hub.counters.refused_filters += 1
            return error.reason if self._connection.output.version == codec.V5 else _REFUSED_311
        if wants_retained:
            self._fresh.append(subscription)
        return request.qos


def _grant(
    sessions: Sessions,
    state: SessionState,
    rights: TopicRights,
    request: FilterRequest,
    identifier: int,
    content: ContentFilter | None,
) -> tuple[Subscription, bool]:
    name, filter = split_share(request.filter)
    if name and content is not None:  # a member would have to pass on what it does not want
        raise MqttError(codec.IMPLEMENTATION_ERROR, "4.8.2", "a shared subscription has no filter")
    if name and request.no_local:
        raise protocol_error("MQTT-3.8.3-4", "no local on a shared subscription")
    check_filter(filter)
    rights.check_subscribe(filter)
    if filter in sessions.refused_filters:
        raise MqttError(codec.UNSPECIFIED, "MQTT-3.8.4-6", "subscriptions to this filter are refused")
    _check_bounds(sessions, state, request.filter)
    subscription = Subscription(
        state,
        filter,
        request.qos,
        request.no_local,
        request.retain_as_published,
        identifier,
        request.retain_handling,
        content=content,
    )
    hub = sessions.hub
    new = hub.shares.subscribe(name, subscription) if name else hub.subscribe(subscription)
    state.subscriptions[request.filter] = subscription
    if hub.journal is not None and state.record is not None:
        kept = SubscriptionRecord(
            options_of(request), identifier, content.text if content is not None else ""
        )
        hub.journal.subscribed(state.record, request.filter, kept)
    handling = request.retain_handling
    return subscription, not (name or handling == 2 or (handling == 1 and not new))


def _explained(connection: ConnectionState, answer: Suback, fault: str) -> Suback:
    """Returns the answer with a reason, if the client wants reasons and it is short enough for it."""
    longer = Suback(answer.kind, answer.packet_id, answer.reasons, connection.output.explained(fault))
    return longer if connection.output.fits(longer) else answer


def options_of(request: FilterRequest) -> int:
    """Returns the subscription options byte of SUBSCRIBE."""
    return (
        request.qos | request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
    )


def _check_bounds(sessions: Sessions, state: SessionState, filter: bytes) -> None:
    settings = sessions.settings
    if filter.count(b"/") >= settings.max_levels:
        raise MqttError(codec.BAD_FILTER, "4.7.3", f"a filter of more than {settings.max_levels} levels")
    if len(state.subscriptions) >= settings.max_subscriptions and filter not in state.subscriptions:
        raise MqttError(codec.QUOTA_EXCEEDED, "4.13", "the client's subscription limit is reached")


class Removing(Steps):
    """Unsubscribes from the filters of an UNSUBSCRIBE, then answers it."""

    def __init__(
        self, connection: ConnectionState, sessions: Sessions, state: SessionState, packet: Unsubscribe
    ) -> None:
        self._connection = connection
        self._sessions = sessions
        self._state = state
        self._packet = packet
        self._reasons = bytearray()

    def step(self) -> bool:
        filters, reasons, work = self._packet.filters, self._reasons, self._sessions.work
        while len(reasons) < len(filters):
            reasons.append(self._removed(filters[len(reasons)]))
            if len(reasons) % AT_ONCE == 0 and work.spent():
                return False
        self._connection.output.send(Suback(codec.UNSUBACK, self._packet.packet_id, bytes(reasons)))
        return True

    def _removed(self, filter: bytes) -> int:
        """Unsubscribes from one filter and returns its reason code."""
        found = drop(self._sessions, self._state, filter)
        return codec.SUCCESS if found else codec.NO_SUBSCRIPTION_EXISTED


def drop(sessions: Sessions, state: SessionState, filter: bytes) -> bool:
    """Removes a subscription, given as the client wrote it. Returns whether there was one."""
    journal = sessions.hub.journal
    subscription = state.subscriptions.pop(filter, None)
    if subscription is None:
        return False
    subscription.ended = True
    sessions.remove(state, filter, subscription)
    if subscription.group is not None:
        state.pass_on([subscription.group.share])
    if journal is not None and state.record is not None:
        journal.unsubscribed(state.record, filter)
    return True


def subscribing(connection: ConnectionState, sessions: Sessions, packet: Subscribe) -> Steps:
    """Returns the work of a SUBSCRIBE. Raises MqttError if its answer will be too large for the client."""
    state = connection.state
    assert state is not None
    _check_answer(connection, codec.SUBACK, len(packet.filters))
    return Granting(connection, sessions, state, for_bridge(packet) if connection.bridge else packet)


def unsubscribing(connection: ConnectionState, sessions: Sessions, packet: Unsubscribe) -> Steps:
    """Returns the work of an UNSUBSCRIBE. Raises MqttError if its answer will be too large for the client."""
    state = connection.state
    assert state is not None
    _check_answer(connection, codec.UNSUBACK, len(packet.filters))
    return Removing(connection, sessions, state, packet)


def _check_answer(connection: ConnectionState, kind: int, filters: int) -> None:
    if not connection.output.fits(Suback(kind, 1, bytes(filters))):
        raise MqttError(
            codec.PACKET_TOO_LARGE,
            "MQTT-3.1.2-24",
            f"the answer to {filters} filters exceeds the client's Maximum Packet Size",
        )
