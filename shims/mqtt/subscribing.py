"""SUBSCRIBE and UNSUBSCRIBE: from filters to subscriptions in the hub, and what is retained for them."""

from __future__ import annotations

from treecast.middleware.broker.pubsub import Message, Subscription

from . import codec
from .codec import MqttError, protocol_error
from .codec_packets import FilterRequest, Suback, Subscribe, Unsubscribe
from .codec_read import check_filter, split_share
from .session_state import SessionState
from .sessions import Sessions

Retained = list[tuple[Message, Subscription]]
_REFUSED_311 = 0x80


def granted(
    sessions: Sessions, state: SessionState, packet: Subscribe, version: int
) -> tuple[Suback, Retained]:
    """Subscribes to all filters that are in order; the answer, and what is retained for the new ones."""
    identifiers = packet.properties.subscription_ids
    identifier = identifiers[0] if identifiers else 0
    reasons = bytearray()
    retained: Retained = []
    for request in packet.filters:
        try:
            retained += _grant(sessions, state, request, identifier)
            reasons.append(request.qos)
        except MqttError as error:
            if error.reason == codec.PROTOCOL_ERROR:
                raise
            sessions.hub.counters.refused_filters += 1
            reasons.append(error.reason if version == codec.V5 else _REFUSED_311)
    return Suback(codec.SUBACK, packet.packet_id, bytes(reasons)), retained


def _grant(sessions: Sessions, state: SessionState, request: FilterRequest, identifier: int) -> Retained:
    name, filter = split_share(request.filter)
    if name and request.no_local:
        raise protocol_error("MQTT-3.8.3-4", "no local on a shared subscription")
    check_filter(filter)
    if filter in sessions.refused_filters:
        raise MqttError(codec.UNSPECIFIED, "MQTT-3.8.4-6", "this filter may not be subscribed to")
    _check_bounds(sessions, state, request.filter)
    subscription = Subscription(
        state,
        filter,
        request.qos,
        request.no_local,
        request.retain_as_published,
        identifier,
        request.retain_handling,
    )
    hub = sessions.hub
    new = hub.subscribe_shared(name, subscription) if name else hub.subscribe(subscription)
    state.subscriptions[request.filter] = subscription
    if hub.journal is not None and state.record is not None:
        hub.journal.subscribed(state.record, request.filter, options_of(request), identifier)
    if name or request.retain_handling == 2 or (request.retain_handling == 1 and not new):
        return []
    return [(message, subscription) for message in hub.retained.match(filter, hub.wall)]


def options_of(request: FilterRequest) -> int:
    """The options as SUBSCRIBE writes them."""
    return (
        request.qos | request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
    )


def _check_bounds(sessions: Sessions, state: SessionState, filter: bytes) -> None:
    settings = sessions.settings
    if filter.count(b"/") >= settings.max_levels:
        raise MqttError(codec.BAD_FILTER, "4.7.3", f"a filter of more than {settings.max_levels} levels")
    if len(state.subscriptions) >= settings.max_subscriptions and filter not in state.subscriptions:
        raise MqttError(codec.QUOTA_EXCEEDED, "4.13", "as many subscriptions as a client may have")


def removed(sessions: Sessions, state: SessionState, packet: Unsubscribe) -> Suback:
    """Takes the filters away; the answer."""
    reasons = bytearray()
    journal = sessions.hub.journal
    for filter in packet.filters:
        subscription = state.subscriptions.pop(filter, None)
        if subscription is None:
            reasons.append(codec.NO_SUBSCRIPTION_EXISTED)
            continue
        sessions.remove(state, filter, subscription)
        reasons.append(codec.SUCCESS)
        if journal is not None and state.record is not None:
            journal.unsubscribed(state.record, filter)
    return Suback(codec.UNSUBACK, packet.packet_id, bytes(reasons))
