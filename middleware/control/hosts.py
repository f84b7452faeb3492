"""Hosts: attach with a lease, renew, detach, expire. A name keeps its id for ever.

An attach tells which data directory the host has, and which of its runs that directory knows. So a directory
that is another one, an older state of the known one, or a copy of it is recognised here, and `_lost` says
what follows from that. See docs/decisions/2026-11-27-an-old-directory.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from msgspec.structs import replace

from treecast.middleware.api.entries import Change, Counter, CounterEntry, HostEntry, Kind, Presence, put
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.runs import MOST, RunMark, includes, is_run
from treecast.middleware.model.transitions import transitions
from treecast.middleware.routing.zones import parse_zone

from .cluster_state import ClusterState
from .commands import Attach, Detach, Done, Expire, Renew, Session
from .decision import Decision, check_room, check_text
from .values import HOST_ID_MAX, ItemWrite, stamp_write

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")


class Event(enum.Enum):
    """An event in a host's life. The value describes it for an operator."""

    ATTACH = "it attaches, for the first time or again"
    RENEW = "it renews its lease"
    WORK = "it makes a request"
    DETACH = "it detaches"
    EXPIRE = "its lease expires"


ABSENT, ATTACHED, AWAY, DETACHED = Presence
_AGAIN = Fault.UNKNOWN_MEMBER  # the host must attach again, then repeat the call
_NEVER = Fault.INTERNAL  # impossible: there is no lease

# event: (as ABSENT, ATTACHED, AWAY, DETACHED)
_ROWS: dict[Event, tuple[Presence | Fault, Presence | Fault, Presence | Fault, Presence | Fault]] = {
    Event.ATTACH: (ATTACHED, ATTACHED, ATTACHED, ATTACHED),
    Event.RENEW: (_AGAIN, ATTACHED, _AGAIN, _AGAIN),
    Event.WORK: (_AGAIN, ATTACHED, _AGAIN, _AGAIN),
    Event.DETACH: (_AGAIN, DETACHED, DETACHED, _AGAIN),
    Event.EXPIRE: (_NEVER, AWAY, _NEVER, _NEVER),
}

TABLE: Mapping[Presence, Mapping[Event, Presence | Fault]] = transitions(Presence, _ROWS)


def follow(presence: Presence, event: Event) -> Presence:
    """Returns a host's presence after `event`. Raises the fault that refuses it."""
    following = TABLE[presence][event]
    if isinstance(following, Fault):
        raise TreecastError(following, f"the host is {presence.name.lower()}: attach again, then repeat this")
    return following


def caller(state: ClusterState, session: Session, event: Event = Event.WORK) -> HostEntry:
    """Returns the calling host. Raises UNKNOWN_MEMBER if it has no lease or has attached again since."""
    host = state.host_by_id(session.host_id)
    if host is None:
        raise TreecastError(Fault.UNKNOWN_MEMBER, f"no host has the id {session.host_id}: attach first")
    if session.incarnation != host.incarnation:
        raise TreecastError(
            Fault.UNKNOWN_MEMBER,
            f"host {host.name} attached again since (incarnation {host.incarnation}, this call is of"
            f" {session.incarnation}): if no other daemon uses this name, attach again",
        )
    follow(host.presence, event)
    return host


def attach(state: ClusterState, command: Attach) -> Decision[HostEntry]:
    _check(state, command)
    before = state.host(command.name)
    presence = follow(ABSENT if before is None else before.presence, Event.ATTACH)
    counted: tuple[Change, ...] = ()
    lost = before is not None and is_lost(before, command)
    if before is None:
        check_room("hosts", state.size(Kind.HOST), 1, min(state.settings.limits.hosts, HOST_ID_MAX))
        host_id, incarnation = state.counter(Counter.HOST_ID) + 1, 1
        counted = (put(CounterEntry(Counter.HOST_ID, host_id)),)
    else:
        _check_one_daemon(before, command, lost=lost)
        host_id, incarnation = before.host_id, before.incarnation + 1
        counted = _lost(state, host_id) if lost else ()
    run = _run(before, command, lost=lost)
    host = HostEntry(
        host_id,
        command.name,
        command.instance,
        command.address,
        command.version,
        incarnation,
        presence,
        run,
        command.leads_nothing,
        command.zone,
        _run_id(before, command),
        run if lost else before.lost_run if before is not None else 0,
        command.mtu,
    )
    return Decision(host, (*counted, put(host)))


def _lost(state: ClusterState, host_id: int) -> tuple[Change, ...]:
    """Returns all that follows when a host comes with a new data directory, or with an older state of one:
    nothing that it holds is the latest for sure.
    """
    return (*_waiting(state, host_id), *_reloading(state, host_id))


def _waiting(state: ClusterState, host_id: int) -> tuple[Change, ...]:
    """Returns the changes for a host that returned with another directory: all partitions that it
    leads wait.
    """
    changes = []
    for topic in state.topics():
        partitions = tuple(
            replace(entry, waits=True) if entry.leader == host_id else entry for entry in topic.partitions
        )
        if partitions != topic.partitions:
            changes.append(put(replace(topic, partitions=partitions)))
    return tuple(changes)


def _reloading(state: ClusterState, host_id: int) -> tuple[Change, ...]:
    """Returns the changes that raise the epoch of every home of a host that returned with another directory.

    Its rows may be old. Under the raised epoch it loads the stored items, and writes of older rows are
    refused.
    """
    return tuple(put(replace(home, epoch=home.epoch + 1)) for home in state.homes_of(host_id))


def is_lost(before: HostEntry, command: Attach) -> bool:
    """Returns whether the directory may hold less than that of the last attach under this name: it is another
    one, an older state of it, or began as a copy of it.

    A directory of an earlier version tells no runs, and its number is all that there is to compare.
    """
    if before.instance != command.instance or 0 < command.run < before.run:
        return True
    if not command.runs or not before.run_id:
        return False
    heard = command.heard
    stamp = heard.stamp if heard is not None and heard.id == before.run_id else 0
    return not includes(command.runs, RunMark(before.run_id, stamp))


def _run_id(before: HostEntry | None, command: Attach) -> str:
    if command.runs:
        return command.runs[-1].id
    return before.run_id if before is not None else ""


def _run(before: HostEntry | None, command: Attach, *, lost: bool) -> int:
    """Returns the number of the caller's run, unique under this name across all directories.

    A number above its own tells the caller that its directory is new here, or old.
    """
    if before is None or not command.run:
        return command.run or (before.run if before is not None else 0)
    return max(before.run, command.run, command.clock_run - 1) + 1 if lost else command.run


def check_name(name: str) -> None:
    """Raises INVALID_REQUEST for a text that is no name of a host."""
    if not _NAME.match(name):
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"host name {name[:300]!r}: use 1 to 255 of A-Z a-z 0-9 . _ -, first a letter or digit",
        )


def _check(state: ClusterState, command: Attach) -> None:
    check_name(command.name)
    for what, text in (
        ("instance", command.instance),
        ("fabric address", command.address),
        ("version", command.version),
    ):
        check_text(f"the {what} of host {command.name}", text, state.settings.limits.text)
    if len(command.runs) > MOST or not all(map(is_run, command.runs)):
        raise TreecastError(
            Fault.INVALID_REQUEST, f"the runs of host {command.name} are no ids, or more than {MOST}"
        )
    try:
        parse_zone(command.zone)
    except ValueError as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"host {command.name}: {error}") from None


def _check_one_daemon(before: HostEntry, command: Attach, *, lost: bool) -> None:
    """Refuses a second living daemon of the same name: both would take the lease from each other for ever."""
    if before.presence is not ATTACHED or not lost:
        return
    if before.instance != command.instance:
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"a host named {before.name} is attached already, at {before.address}, with another data"
            " directory: choose another --name, or stop that one and wait for its lease to end",
        )
    raise TreecastError(
        Fault.POLICY_VIOLATION,
        f"another daemon runs as host {before.name}, at {before.address}, and this data directory is a copy"
        " or an older state of its own: stop this one if that one is to stay. If that one is gone, or has"
        " only just been stopped, start this one again once its lease has ended",
    )


def renew(state: ClusterState, command: Renew) -> Decision[HostEntry]:
    host = caller(state, command.session, Event.RENEW)
    return Decision(host, items=_stamped(host, command.stamp), prolonged=host.name)


def _stamped(host: HostEntry, stamp: int) -> tuple[ItemWrite, ...]:
    return (stamp_write(host.host_id, host.run_id, stamp),) if stamp and host.run_id else ()


def detach(state: ClusterState, command: Detach) -> Decision[HostEntry]:
    """Detaches a host. Its interest is removed; ids, leaderships and homes stay until somebody asks
    for them.
    """
    host = caller(state, command.session, Event.DETACH)
    gone = replace(host, presence=follow(host.presence, Event.DETACH))
    changes = [put(gone)]
    if state.interest(host.host_id) is not None:
        changes.append(Change(Kind.INTEREST, str(host.host_id), None))
    return Decision(gone, tuple(changes), _stamped(host, command.stamp))


def expire(state: ClusterState, command: Expire) -> Decision[Done]:
    host = state.host(command.name)
    if host is None:
        raise TreecastError(
            Fault.INTERNAL, f"the lease of host {command.name} cannot expire: no such host is attached"
        )
    return Decision(Done(), (put(replace(host, presence=follow(host.presence, Event.EXPIRE))),))
