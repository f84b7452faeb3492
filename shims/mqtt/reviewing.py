"""A review after a change of rights: ends connections of users who are gone, and forbidden subscriptions.

Publishes ask for their right as they come. A client that loses a subscription is disconnected, since no
packet could tell it; it finds the others when it returns.
"""

from __future__ import annotations

from treecast.middleware.broker.access import Granted

from . import codec
from .rights import may_read, rights_of
from .session_state import SessionState
from .sessions import Sessions
from .subscribing import drop


def review(sessions: Sessions, now: float) -> None:
    """Called after each change of users or rules, and when sessions were restored."""
    if not sessions.identities.closed:
        return
    for state in sessions.states():
        if state.user:  # those of nobody wait for the first user with their client id, who is reviewed then
            lost = prune(sessions, state, rights_of(sessions.identities, state.user))
            if lost:
                sessions.cut_off(state, codec.NOT_AUTHORIZED, "a filter may not be read any more", now)
        known = sessions.identities.knows(state.user)
        address = state.output.address if state.output is not None else ""
        if known and not sessions.identities.admits(state.user, address):
            sessions.cut_off(state, codec.NOT_AUTHORIZED, "the user may come from this machine only", now)
        if not known and not sessions.in_password_file(state.user):
            detail = "the user is gone" if state.user else "clients have to log in here"
            sessions.cut_off(state, codec.NOT_AUTHORIZED, detail, now)


def prune(sessions: Sessions, state: SessionState, granted: Granted) -> bool:
    """Removes the subscriptions that the session's user may not read. Returns whether there were any."""
    lost = [key for key, one in state.subscriptions.items() if not may_read(granted, one.filter)]
    for filter in lost:
        drop(sessions, state, filter)
    return bool(lost)
