"""The definitions of all virtual hosts, kept equal on all joined hosts.

A change is applied here first and then announced: the coordinator decides which host was first to define a
name. A definition that another host made first replaces the one made here; the messages of a queue that loses
its name in this way move to the queue that has it. While a change of this host is on its way, other news of
the same key is ignored, and looked up once the change is decided.

| key                                                       | value (`entries.encoded`)    |
| --------------------------------------------------------- | ---------------------------- |
| `0:` empty, `user` or `cluster`, name                     | `Declared`, see `Outside`    |
| `1:` virtual host                                         | `Declared`, kind `vhost`     |
| `2:` virtual host, `policy` or `operator_policy`, name    | `Declared`, as `Policy.said` |
| `3:` virtual host, exchange                               | `Declared`                   |
| `4:` virtual host, queue                                  | `Declared`                   |
| `5:` virtual host, source, kind and name of destination,  | `Bound`                      |
| key, hash of arguments                                    |                              |
| `6:` virtual host, `description`, `permission` or         | `Declared`, see `Outside`    |
| `topic_permission`, name                                  |                              |
| `7:` kind of agent, virtual host, exchange                | opaque here, see `agents`    |

Parts of keys are quoted as in URLs and joined by `/`. The order of keys is an order in which definitions can
be made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.field_table import same

from . import entries
from .entries import Bound, Declared
from .exchange import Destination, ExchangeType, binding_of
from .policies import Policy
from .reach import Defined, Reach, Write
from .recorder import Recorder
from .refusals import Reason, Refusal, text
from .virtual_host import VirtualHost

_log = Log(__name__)

VHOST: Final = "vhost"
POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"
EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"


class OutsideKind:
    """The kinds of definitions that are not of queues, see `Outside`."""

    USER: Final = "user"
    CLUSTER: Final = "cluster"
    DESCRIPTION: Final = "description"
    PERMISSION: Final = "permission"
    TOPIC_PERMISSION: Final = "topic_permission"


_RANKS: Final = {
    OutsideKind.USER: "0",
    OutsideKind.CLUSTER: "0",
    VHOST: "1",
    POLICY: "2",
    OPERATOR_POLICY: "2",
    EXCHANGE: "3",
    QUEUE: "4",
    OutsideKind.DESCRIPTION: "6",
    OutsideKind.PERMISSION: "6",
    OutsideKind.TOPIC_PERMISSION: "6",
}
_OUTSIDE: Final = frozenset(
    {
        OutsideKind.USER,
        OutsideKind.CLUSTER,
        OutsideKind.DESCRIPTION,
        OutsideKind.PERMISSION,
        OutsideKind.TOPIC_PERMISSION,
    }
)
_REPLACED: Final = _OUTSIDE | {POLICY, OPERATOR_POLICY}  # the last one of a name counts
_BINDING: Final = "5"
AGENTS: Final = "7:"  # what keys begin with that agents use among themselves
_BUILT_IN: Final = b"amq."

A = TypeVar("A")
B = TypeVar("B")


class VirtualHosts(Protocol):
    """The virtual hosts of a host."""

    vhosts: dict[str, VirtualHost]

    def add_vhost(self, name: str) -> VirtualHost: ...

    def remove_vhost(self, name: str) -> None: ...


class QueueKeeper(Protocol):
    """The part that knows how to represent queues of other hosts."""

    def elsewhere(self, vhost: VirtualHost, declared: Declared, home: int) -> None:
        """The queue is at `home`: represents it here, in place of what has its name."""

    def gone(self, vhost: VirtualHost, name: bytes) -> None:
        """A queue of another host was deleted."""


class Outside(Protocol):
    """The face's definitions that are not of queues: users, permissions, descriptions of virtual hosts, and
    the cluster's name."""

    def own(self) -> Iterable[Declared]:
        """Returns what is defined on this host."""

    def joining(self, users: bool) -> None:
        """Called before this host's definitions are brought together with those of the cluster. `users`:
        whether the cluster has any."""

    def put(self, one: Declared) -> None:
        """Takes over a definition. Raises ValueError or KeyError if it cannot be read."""

    def remove(self, one: Declared) -> None: ...


class NothingOutside:
    def own(self) -> Iterable[Declared]:
        return ()

    def joining(self, users: bool) -> None: ...

    def put(self, one: Declared) -> None: ...

    def remove(self, one: Declared) -> None: ...


def declared_key(vhost: str, kind: str, name: bytes) -> str:
    if kind == VHOST:
        return f"1:{_quoted(vhost)}"
    parts: list[str | bytes] = [vhost, name] if kind in (EXCHANGE, QUEUE) else [vhost, kind, name]
    return f"{_RANKS[kind]}:" + "/".join(map(_quoted, parts))


def bound_key(one: Bound) -> str:
    parts: list[str | bytes] = [one.vhost, one.source, one.kind, one.name, one.key]
    arguments = binding_of(Destination(one.name, False), one.key, one.arguments).arguments
    return f"{_BINDING}:" + "/".join([*map(_quoted, parts), sha256(arguments.encode()).hexdigest()[:16]])


def _quoted(name: str | bytes) -> str:
    return quote(name, safe="")


def read(key: str, value: bytes) -> Declared | Bound:
    """Returns the definition. Raises ValueError if it is none."""
    found = entries.bound(value) if key.startswith(_BINDING) else entries.declared(value)
    made = bound_key(found) if isinstance(found, Bound) else declared_key(found.vhost, found.kind, found.name)
    if made != key:
        raise ValueError(f"it is the definition of {made}")
    return found


class SharingRecorder(Recorder):
    """Announces the definitions of one virtual host."""

    def __init__(self, shared: SharedDefinitions, vhost: str) -> None:
        self._shared = shared
        self._vhost = vhost

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        self._shared.announce(Declared(self._vhost, kind, name, 0, dict(definition)))

    def deleted(self, kind: str, name: bytes) -> None:
        self._shared.withdraw(declared_key(self._vhost, kind, name))

    def bound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        self._shared.announce(Bound(self._vhost, source, kind, name, key, dict(arguments)))

    def unbound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        self._shared.withdraw(bound_key(Bound(self._vhost, source, kind, name, key, dict(arguments))))

    def ends(self, exchange: bytes) -> bool:
        return self._shared.ends(self._vhost, exchange)


class SharedDefinitions:
    """The definitions of one host, from `begin` on.

    `version` counts the changes made here; the answer to a change waits until `known` has reached it.
    """

    def __init__(self, hosts: VirtualHosts, reach: Reach, keeper: QueueKeeper) -> None:
        self.version = 0
        self.known = 0
        self.now = 0.0  # of the queues, set by the edge
        self.outside: Outside = NothingOutside()
        self._hosts = hosts
        self._reach = reach
        self._keeper = keeper
        self._everywhere: dict[str, Defined] = {}
        self._muted = False
        self.writes: list[Write] = []  # not sent yet
        self._sent: deque[list[Write]] = deque()  # of each call of `define` that is not decided yet
        self._held: deque[int] = deque()  # their numbers of changes, until the answers are released
        self._pending: dict[str, int] = {}  # number of own changes that are not decided, by key
        self._lost: set[tuple[str, bytes]] = set()  # transient queues that ended with an earlier process
        self._unused: set[tuple[str, bytes]] = set()  # auto-delete exchanges that lost their last binding

    # --- the start

    def begin(self, known: Sequence[Defined], removed: Collection[str]) -> None:
        """Brings definitions made here before together with those of the cluster.

        `removed`: keys that were known to this host before it started, and have been deleted elsewhere.
        """
        self._everywhere = {one.key: one for one in known}
        users = declared_key("", OutsideKind.USER, b"")
        self.outside.joining(any(key.startswith(users) for key in self._everywhere))
        for vhost in list(self._hosts.vhosts.values()):
            self.use(vhost)
        for key, one in sorted(self._own(), key=lambda pair: pair[0], reverse=True):
            if key in removed and key not in self._everywhere:
                self._muting(self._remove, key, one)
        for _, found in sorted(self._everywhere.items()):
            self._muting(self._put, found, True)
        self._withdraw_lost()
        self._end_unused()
        for _, one in sorted(self._own(), key=lambda pair: pair[0]):
            self.announce(one)
        self.send()

    def use(self, vhost: VirtualHost) -> None:
        """Makes a virtual host announce its definitions."""
        if not isinstance(vhost.ledger.sharing, SharingRecorder):
            vhost.ledger.sharing = SharingRecorder(self, vhost.name)

    def _own(self) -> Iterator[tuple[str, Declared | Bound]]:
        """Yields what was defined on this host. Queues of other hosts are left out."""
        for other in self.outside.own():
            yield declared_key(other.vhost, other.kind, other.name), other
        for name, vhost in list(self._hosts.vhosts.items()):
            yield declared_key(name, VHOST, b""), Declared(name, VHOST, b"")
            for kind, policies in (
                (POLICY, vhost.policies.users),
                (OPERATOR_POLICY, vhost.policies.operators),
            ):
                for policy in policies.values():
                    one = Declared(name, kind, policy.name.encode(), 0, policy.said)
                    yield declared_key(name, kind, one.name), one
            for exchange in vhost.exchanges.values():
                if not exchange.name.startswith(_BUILT_IN):
                    one = Declared(name, EXCHANGE, exchange.name, 0, exchange.definition)
                    yield declared_key(name, EXCHANGE, one.name), one
                for binding, arguments in exchange.bindings.items():
                    destination, key, _ = binding
                    kind = EXCHANGE if destination.is_exchange else QUEUE
                    bound = Bound(name, exchange.name, kind, destination.name, key, dict(arguments))
                    yield bound_key(bound), bound
            for queue in vhost.queues.values():
                if queue.home == 0:
                    one = Declared(name, QUEUE, queue.name, 0, queue.definition)
                    yield declared_key(name, QUEUE, one.name), one

    # --- changes made here

    def announce(self, one: Declared | Bound) -> None:
        """Announces a definition, unless all hosts know it already."""
        if self._muted:
            return
        key = bound_key(one) if isinstance(one, Bound) else declared_key(one.vhost, one.kind, one.name)
        value = entries.encoded(one)
        found = self._everywhere.get(key)
        if key in self._pending or found is None or found.value != value:
            replace = isinstance(one, Declared) and one.kind in _REPLACED
            self._write(Write(key, value, replace))

    def withdraw(self, key: str) -> None:
        """Announces that a definition was deleted."""
        if not self._muted and (key in self._everywhere or key in self._pending):
            self._write(Write(key, None))

    def _write(self, write: Write) -> None:
        self.version += 1
        self._pending[write.key] = self._pending.get(write.key, 0) + 1
        self.writes.append(write)

    def send(self) -> None:
        """Sends the changes since the last call."""
        if self.writes:
            writes, self.writes = self.writes, []
            self._sent.append(writes)
            self._held.append(len(writes))
            self._reach.define(writes)

    def released(self) -> None:
        """Answers to the oldest changes sent need not wait any longer."""
        self.known += self._held.popleft()

    def decided(self) -> None:
        """The oldest changes sent are decided, and this host has heard of the outcome."""
        for write in self._sent.popleft():
            self._pending[write.key] -= 1
            if self._pending[write.key] == 0:
                del self._pending[write.key]
                self._look_up(write)
        self._end_unused()
        self.send()

    def _look_up(self, write: Write) -> None:
        """Takes over the outcome of this host's last change of a definition."""
        found = self._everywhere.get(write.key)
        if found is not None:
            self._muting(self._put, found, False)
        elif write.value is not None:  # another host has deleted it since
            one = self._read(Defined(write.key, self._reach.host, write.value))
            if one is not None and self._stays(one, {}):
                self.announce(one)
            elif one is not None:
                self._muting(self._remove, write.key, one)
                self._claim(one)

    def _stays(self, one: Declared | Bound, changes: Mapping[str, Defined | None]) -> bool:
        """Whether a binding went only because its queue, which is here, lost its definition and gets it
        again (`_claim`)."""
        if isinstance(one, Declared) or one.kind != QUEUE:
            return False
        vhost = self._hosts.vhosts.get(one.vhost)
        if vhost is None or one.name not in vhost.queues or one.source not in vhost.exchanges:
            return False
        key = declared_key(one.vhost, QUEUE, one.name)
        removed = key in changes and changes[key] is None
        return vhost.queues[one.name].home == 0 and (removed or key in self._pending)

    def _claim(self, one: Declared | Bound) -> None:
        """Announces a queue of this host again whose definition another host has removed: it had declared and
        deleted a queue of that name before it knew of this one."""
        if isinstance(one, Declared) and one.kind == QUEUE:
            vhost = self._hosts.vhosts.get(one.vhost)
            queue = vhost.queues.get(one.name) if vhost is not None else None
            if queue is not None and queue.home == 0:
                self.announce(Declared(one.vhost, QUEUE, one.name, 0, queue.definition))

    # --- changes made by other hosts

    def heard(self, changes: Mapping[str, Defined | None]) -> None:
        """Applies changes by any host: first those that remove something, the dependent ones first."""
        removed = sorted((key for key, one in changes.items() if one is None), reverse=True)
        vhosts = {key for key in removed if key.startswith(_RANKS[VHOST])}
        kept: list[Declared | Bound] = []
        for key in removed:
            before = self._everywhere.pop(key, None)
            if before is not None and key not in self._pending:
                one = self._read(before)
                if one is not None and not vhosts and self._stays(one, changes):
                    kept.append(one)
                elif one is not None:
                    self._muting(self._remove, key, one)
                    if declared_key(one.vhost, VHOST, b"") not in vhosts:
                        self._claim(one)
        for one in kept:  # their queues are announced before them
            self.announce(one)
        for key in sorted(changes):
            found = changes[key]
            if found is not None:
                self._everywhere[key] = found
                if key not in self._pending:
                    self._muting(self._put, found, False)
        self._end_unused()
        self.send()

    def ends(self, vhost: str, exchange: bytes) -> bool:
        """Returns whether an auto-delete exchange without bindings is deleted now.

        If another host's change took its last binding, only the host that declared it deletes it, for all:
        other hosts may have heard of its bindings in another order, or never.
        """
        if self._muted:
            self._unused.add((vhost, exchange))
        return not self._muted

    def _end_unused(self) -> None:
        unused, self._unused = self._unused, set()
        for name, exchange in sorted(unused):
            found = self._everywhere.get(declared_key(name, EXCHANGE, exchange))
            vhost = self._hosts.vhosts.get(name)
            here = vhost.exchanges.get(exchange) if vhost is not None else None
            mine = found is None or found.host == self._reach.host
            if vhost is not None and here is not None and mine and not here.bindings:
                vhost.exchange_definitions.delete(exchange)

    def _read(self, found: Defined) -> Declared | Bound | None:
        if found.key.startswith(AGENTS):
            return None
        try:
            return read(found.key, found.value)
        except (ValueError, KeyError, msgspec.DecodeError) as error:
            _log.warning("definition is left out", key=found.key[:200], host=found.host, error=error)
            return None

    def _muting(self, what: Callable[[A, B], None], one: A, other: B) -> None:
        """Calls a function while nothing is announced."""
        before, self._muted = self._muted, True
        try:
            what(one, other)
        except (Refusal, TreecastError, KeyError, ValueError, TypeError) as error:
            _log.warning("definition cannot be applied", error=error)
        finally:
            self._muted = before

    def _put(self, found: Defined, starting: bool) -> None:
        one = self._read(found)
        if one is None:
            return
        if isinstance(one, Declared) and one.kind in _OUTSIDE:
            self.outside.put(one)
            return
        vhost = self._hosts.vhosts.get(one.vhost)
        if vhost is None:
            vhost = self._hosts.add_vhost(one.vhost)
            self.use(vhost)
        if isinstance(one, Bound):
            self._bind(vhost, one)
        elif one.kind == QUEUE:
            self._put_queue(vhost, one, found.host, starting)
        elif one.kind == EXCHANGE:
            _put_exchange(vhost, one)
        elif one.kind != VHOST:
            vhost.policies.set(_policy(one), self.now, operator=one.kind == OPERATOR_POLICY)

    def _bind(self, vhost: VirtualHost, one: Bound) -> None:
        target = Destination(one.name, one.kind == EXCHANGE)
        owner = None
        if not target.is_exchange and one.name in vhost.queues:
            owner = vhost.queues[one.name].owner
        try:
            vhost.bindings.bind(one.source, target, one.key, one.arguments, owner)
        except Refusal as refusal:
            if refusal.reason is not Reason.NOT_FOUND:
                raise
            # One end was deleted by another host at the same time.
            _log.info("binding has lost an end", exchange=text(one.source), bound=text(one.name))

    def _put_queue(self, vhost: VirtualHost, one: Declared, home: int, starting: bool) -> None:
        queue = vhost.queues.get(one.name)
        if home != self._reach.host:
            if queue is None or queue.home != home or not same(queue.definition, one.definition):
                self._keeper.elsewhere(vhost, one, home)
        elif starting and queue is None:
            self._again(vhost, one)

    def _again(self, vhost: VirtualHost, one: Declared) -> None:
        """Handles a queue of this host that is known to others but not here: it ended with the process, or
        the disk was lost. A durable one is there again, without messages."""
        if one.definition.get("durable") is True:
            arguments = one.definition.get("arguments")
            vhost.ledger.restoring = True
            try:
                vhost.queue_definitions.declare(
                    one.name,
                    auto_delete=one.definition.get("auto_delete") is True,
                    arguments=arguments if isinstance(arguments, dict) else {},
                    now=self.now,
                )
            finally:
                vhost.ledger.restoring = False
            return
        self._lost.add((one.vhost, one.name))

    def _withdraw_lost(self) -> None:
        """Announces that transient queues of an earlier process are gone, with their bindings."""
        for key, found in self._everywhere.items():
            one = self._read(found) if self._lost and key[0] in (_RANKS[QUEUE], _BINDING) else None
            queue = isinstance(one, Declared) or (isinstance(one, Bound) and one.kind == QUEUE)
            if one is not None and queue and (one.vhost, one.name) in self._lost:
                self._write(Write(key, None))
        self._lost.clear()

    def _remove(self, key: str, one: Declared | Bound) -> None:
        if isinstance(one, Declared) and one.kind in _OUTSIDE:
            self.outside.remove(one)
            return
        vhost = self._hosts.vhosts.get(one.vhost)
        if vhost is None:
            return
        if isinstance(one, Bound):
            _unbind(vhost, one)
        elif one.kind == QUEUE:
            self._keeper.gone(vhost, one.name)
        elif one.kind == EXCHANGE:
            if one.name in vhost.exchanges:
                vhost.exchange_definitions.delete(one.name)
        elif one.kind == VHOST:
            if one.vhost != "/":
                self._hosts.remove_vhost(one.vhost)
        else:
            vhost.policies.delete(one.name.decode(), self.now, operator=one.kind == OPERATOR_POLICY)


def _policy(one: Declared) -> Policy:
    said = one.definition
    definition, priority = said["definition"], said["priority"]
    if not isinstance(definition, dict) or not isinstance(priority, int):
        raise ValueError(f"policy {one.name!r} has no definition")
    return Policy(one.name.decode(), str(said["pattern"]), definition, priority, str(said["apply-to"]))


def _put_exchange(vhost: VirtualHost, one: Declared) -> None:
    """Makes an exchange as another host declared it. One with the same name but another declaration was
    declared here at the same time: it is replaced, and keeps its bindings."""
    found = vhost.exchanges.get(one.name)
    if found is not None and same(found.definition, one.definition):
        return
    said = one.definition
    arguments = said.get("arguments")
    bindings = dict(found.bindings) if found is not None else {}
    if found is not None:
        _log.warning("exchange was declared differently by another host", exchange=text(one.name))
        del vhost.exchanges[one.name]
    kind = ExchangeType(str(said["type"]))
    vhost.ledger.restoring = True
    try:
        exchange = vhost.exchange_definitions.declare(
            one.name,
            kind.value,
            durable=said.get("durable") is True,
            auto_delete=said.get("auto_delete") is True,
            internal=said.get("internal") is True,
            arguments=arguments if isinstance(arguments, dict) else {},
        )
    finally:
        vhost.ledger.restoring = False
    for binding, given in bindings.items():
        exchange.bind(binding, given)


def _unbind(vhost: VirtualHost, one: Bound) -> None:
    target = Destination(one.name, one.kind == EXCHANGE)
    queue = vhost.queues.get(one.name) if not target.is_exchange else None
    owner = queue.owner if queue is not None else None
    vhost.bindings.unbind(one.source, target, one.key, one.arguments, owner)
