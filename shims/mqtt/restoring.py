"""Restores sessions from the journal when the daemon starts."""

from __future__ import annotations

from treecast.middleware.broker import content_filter
from treecast.middleware.broker.pubsub import Creditor, Owed, Subscription, SubscriptionRecord

from .codec_read import split_share
from .deliveries import EMPTY, RELEASED, SENT, Delivery
from .session_state import SessionState
from .sessions import Sessions


def restore(sessions: Sessions, now: float) -> int:
    """Restores all durable sessions and returns their number.

    A client that was connected when the process ended counts as disconnected now. Session ends and wills that
    are due are left to the next `Sessions.tick`, since their recipients may not be ready yet.
    """
    journal = sessions.hub.journal
    if journal is None:
        return 0
    sessions.hub.shares.restore()
    for record in list(journal.records.values()):
        if not record.of_client:
            continue
        state = _state(sessions, record)
        wall = sessions.hub.clock.wall
        gone_at = record.gone_at or wall
        if record.gone_at == 0.0:
            record.gone_at = wall
            journal.changed(record)
        sessions.adopt(state, now, min(gone_at - wall, 0.0))
    sessions.hub.reach.begin()
    return len(sessions)


def _state(sessions: Sessions, record: Creditor) -> SessionState:
    state = SessionState(sessions.hub, record.number, record.client_id, record.user)
    state.durable = True
    state.record = record
    state.expiry = record.expiry
    state.will = record.will
    state.incoming = set(record.incoming)
    for filter, kept in record.subscriptions.items():
        _subscribe(sessions, state, filter, kept)
    _hand_back(state, record)
    return state


def _subscribe(sessions: Sessions, state: SessionState, filter: bytes, kept: SubscriptionRecord) -> None:
    name, plain = split_share(filter)
    options = kept.options
    subscription = Subscription(
        state,
        plain,
        options & 3,
        bool(options & 4),
        bool(options & 8),
        kept.identifier,
        options >> 4,
        content=content_filter(kept.content) if kept.content else None,
    )
    state.subscriptions[filter] = subscription
    if name:
        sessions.hub.shares.subscribe(name, subscription)
    else:
        sessions.hub.subscribe(subscription)


def _hand_back(state: SessionState, record: Creditor) -> None:
    """Restores released QoS 2 deliveries by packet id, then all others in their original order."""
    for packet_id in sorted(record.released):
        delivery = Delivery(EMPTY, 2, False, ())
        delivery.packet_id = packet_id
        delivery.state = RELEASED
        state.restore(delivery)
    ids = {number: packet_id for packet_id, number in record.sent.items()}
    for number, owed in sorted(record.owed.items()):
        state.restore(_delivery(record, number, owed, ids.get(number, 0)))


def _delivery(record: Creditor, number: int, owed: Owed, packet_id: int) -> Delivery:
    delivery = Delivery(owed.message, owed.qos, owed.retain, owed.identifiers, owed.share)
    record.owed[number] = delivery
    if packet_id:
        delivery.packet_id = packet_id
        delivery.state = SENT
    delivery.sent = owed.sent
    return delivery
