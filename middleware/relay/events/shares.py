"""Shared subscriptions across hosts: each message goes to one member, on whichever host it is.

Every host with members announces that as interest, with the pattern `$share / name / filter`. The host that a
message is published at chooses one host for it, so no message is given out twice. It goes there by the stream
for that host, under a topic that no client can publish to:

    "$share@" | host id | "/" | name | "/" | filter | U+0000 | topic

That is the home, if it can be reached: the host that asked the coordinator first, or the next one to ask
after that host has been away for long. Hosts tell the home how many of their members are connected. It gives
the message to the member whose turn it is, of its own or, by a second such message, of another host. While no
home can be reached, another host with members is chosen.

A host that was to give a message to a member, and has none connected, gives it back to the home. It does so
once the home knows that. What can be given to nobody waits where it is, in the journal
(`broker.pubsub.shared`).
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from treecast.middleware.api.entries import Presence
from treecast.middleware.broker.pubsub import (
    Elsewhere,
    Message,
    PubSub,
    SharedGroup,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.fabric.channel import Methods, Nothing
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import EventCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.wishes import Pattern, Wish
from treecast.middleware.relay.coordinator_link import CoordinatorLink, called
from treecast.middleware.relay.interest import Interest

from .ports import SHARE, EventSettings, ShareRequest
from .sending import Outbox

_log = Log(__name__)

PREFIX: Final = b"$share"  # of all envelopes; no other topic with it comes from another host
_ADDRESSED: Final = b"$share@"
_PLAIN: Final = b"$share/"  # of earlier versions: for whoever receives it
_LEVEL: Final = "$share"
# As in `wishes`: messages go to other hosts as they were published.
_QOS: Final = 2
_MOST_MEMBERS: Final = 100_000  # per host

Key = tuple[bytes, bytes]  # name, filter


class ShareHomes(Protocol):
    """Look-up of the homes of shared subscriptions."""

    def known(self, id: str) -> int:
        """Returns the home's host id as far as this host knows; 0: it does not."""

    async def home(self, id: str, *, ask: bool) -> int:
        """Returns the home's host id. With `ask` the coordinator is asked even if a home is known.

        Raises COORDINATOR_UNAVAILABLE if no home is known and the coordinator does not answer.
        """


class LinkHomes:
    """Implements `ShareHomes` over the view and the coordinator."""

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link

    def known(self, id: str) -> int:
        home = self._link.view.share_home(id)
        return home.host_id if home is not None else 0

    async def home(self, id: str, *, ask: bool) -> int:
        """Returns the home. The coordinator makes this host the home if there is none or its host has been
        away for long."""
        known = self._link.view.share_home(id)
        if known is not None and not ask and self._present(known.host_id):
            return known.host_id
        try:
            found = await called(self._link.client.share_home(self._link.session, id))
        except TreecastError as error:
            if known is not None and error.fault is Fault.COORDINATOR_UNAVAILABLE:
                return known.host_id
            raise
        return found.host_id

    def _present(self, host_id: int) -> bool:
        host = self._link.view.host(host_id)
        return host is not None and host.presence is Presence.ATTACHED


class RemoteMember(Subscriber):
    """A connected member of a shared subscription on another host."""

    def __init__(self, serial: int, host: int, shares: Shares, key: Key) -> None:
        super().__init__(serial)
        self.foreign = True
        self._host = host
        self._shares = shares
        self._key = key

    @property
    def ready(self) -> bool:
        return self._shares.reached(self._host)

    @property
    def online(self) -> bool:
        return self._shares.reached(self._host)

    def take(self, message: Message, target: Target) -> None:
        self._shares.send(message, self._key, self._host)


class Beyond(Elsewhere):
    """Implements `pubsub.Elsewhere` for one shared subscription."""

    def __init__(self, shares: Shares, key: Key) -> None:
        self._shares = shares
        self._key = key

    @property
    def exists(self) -> bool:
        return self._shares.has_members(self._key)

    def take(self, message: Message, published: bool) -> bool:
        host = self._shares.way(self._key, published)
        if host:
            self._shares.send(message, self._key, host)
        return host != 0


class _Share:
    """The state of one shared subscription that the home has to be told of."""

    def __init__(self) -> None:
        self.home = 0  # 0: unknown
        self.told = 0  # number of members that the home was told
        self.settled = False  # nobody has to wait for the home any longer
        self.current = False  # the home knows the members here as they are now
        self.task: asyncio.Task[None] | None = None
        self.again = False


class Shares:
    """All shared subscriptions of one host. `up`: hosts with a channel."""

    def __init__(
        self,
        host: int,
        hub: PubSub,
        outbox: Outbox,
        homes: ShareHomes,
        interest: Interest,
        methods: Methods,
        up: dict[int, None],
        settings: EventSettings,
        counters: EventCounters,
    ) -> None:
        self._host = host
        self._hub = hub
        self._outbox = outbox
        self._homes = homes
        self._interest = interest
        self._methods = methods
        self._up = up
        self._settings = settings
        self._counters = counters
        self._shares: dict[Key, _Share] = {}
        self._wanted: set[Key] = set()  # announced by this host
        self._announced: dict[Key, dict[int, None]] = {}  # other hosts with members
        self._here: set[Key] = set()  # at home here
        self._members: dict[
            tuple[Key, int], list[Subscription]
        ] = {}  # connected ones of other hosts, at the home
        self._waiting: list[asyncio.Future[None]] = []
        self._idle: set[SharedGroup] = set()  # groups that had messages and no members at the last check
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # --- life

    def begin(self) -> None:
        """Takes over the subscriptions of restored sessions. Those whose home is here, as far as is known,
        are served from now on."""
        for group in self._hub.shares.all():
            self.grouped(group)

    def start(self) -> None:
        """Announces the members of restored sessions, and tells their homes."""
        self._methods.register(SHARE, self._joined)
        for group in self._hub.shares.all():
            self.changed(group)
        self._timer = asyncio.get_running_loop().call_later(self._settings.share_forget, self._forget)

    async def close(self) -> None:
        """Stops. The announced interest stays: durable sessions are still members."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [share.task for share in self._shares.values() if share.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self) -> None:
        """Drops what has waited long for a subscription without members on any known host."""
        self._timer = asyncio.get_running_loop().call_later(self._settings.share_forget, self._forget)
        idle = {group for group in self._hub.shares.all() if not group.listed}
        # Twice in a row: the host of the members may only be about to announce them.
        for group in idle & self._idle:
            self._hub.shares.changed(group)
        self._idle = idle - self._idle

    # --- waiting

    @property
    def pending(self) -> bool:
        """Whether a home is not known yet or has not been told of its members here."""
        return any(not share.settled for share in self._shares.values())

    async def settled(self) -> None:
        """Returns when nothing is pending, or after `share_wait`."""
        if not self.pending:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        await asyncio.wait([done], timeout=self._settings.share_wait)

    def _settle(self, share: _Share) -> None:
        share.settled = True
        if not self.pending:
            for done in self._waiting:
                if not done.done():
                    done.set_result(None)
            self._waiting.clear()

    # --- messages

    def reached(self, host: int) -> bool:
        return host in self._up

    def has_members(self, key: Key) -> bool:
        """Whether another host has announced members."""
        return key in self._announced

    def way(self, key: Key, published: bool) -> int:
        """Returns the host to send a message to; 0: none now. Arguments as of `pubsub.Elsewhere.take`.

        A message that comes back goes to the home alone, which knows by then that it cannot be served here.
        """
        share = self._shares.get(key)
        home = self._homes.known(_id(key)) or (share.home if share is not None else 0)
        if home == self._host:
            return 0  # this host is about to serve it
        if home in self._up:
            return home if published or share is None or share.current else 0
        if not published:
            return 0
        return min((host for host in self._announced.get(key, ()) if host in self._up), default=0)

    def send(self, message: Message, key: Key, host: int) -> None:
        """Sends a message to a host that gives it to a member."""
        self._outbox.add_alone(enveloped(message, key, host), host)

    def take(self, message: Message) -> None:
        """Takes an envelope of another host: gives the message to a member."""
        host, key, topic = read_envelope(message.topic)
        if host not in (0, self._host):
            return  # the stream goes to more hosts than the one that is meant
        self._hub.shares.hand_to(*key, _opened(message, topic))

    def _pump(self, key: Key) -> None:
        group = self._hub.shares.get(*key)
        if group is not None:
            self._hub.shares.pump(group)

    def _pump_all(self) -> None:
        for group in self._hub.shares.all():
            self._hub.shares.pump(group)

    # --- members here

    def grouped(self, group: SharedGroup) -> None:
        """Implements `pubsub.Reach`: finds out who serves a new group."""
        key = (group.name, group.filter)
        if _is_local(key):
            self._hub.shares.root(*key)
            return
        group.elsewhere = Beyond(self, key)
        if key in self._here or self._homes.known(_id(key)) == self._host:
            self._hub.shares.root(*key)

    def changed(self, group: SharedGroup) -> None:
        """Announces and tells the home a change of the local members of a group."""
        key = (group.name, group.filter)
        if _is_local(key):
            return
        if group.local and key not in self._wanted:
            self._wanted.add(key)
            self._interest.want(Wish(pattern_of(key)))
        elif not group.local and key in self._wanted:
            self._wanted.discard(key)
            self._interest.unwant(Wish(pattern_of(key)))
        self._tend(key)

    def _counts(self, key: Key) -> tuple[int, int]:
        """Returns (members here, how many of them are not connected)."""
        group = self._hub.shares.get(*key)
        return (group.local, group.local - group.online) if group is not None else (0, 0)

    def _tend(self, key: Key) -> None:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share()
        share.settled = share.current = False
        if share.task is not None:
            share.again = True
            return
        share.task = asyncio.get_running_loop().create_task(
            self._tend_until_settled(key, share), name="share"
        )

    async def _tend_until_settled(self, key: Key, share: _Share) -> None:
        ask = False
        try:
            while not self._closed:
                share.again = False
                try:
                    await self._tend_once(key, share, ask)
                    if not share.again:
                        break
                    ask = False
                except TreecastError as error:
                    ask = error.fault is Fault.NOT_COORDINATOR
                    if not ask:
                        _log.info("shared subscription failed", subscription=_id(key), error=error)
                        self._serve_alone(key, share, error)
                        await asyncio.sleep(self._settings.share_again)
        finally:
            share.task = None
        share.current = True
        self._settle(share)
        if not share.told and self._counts(key) == (0, 0):
            self._shares.pop(key, None)
        self._pump(key)

    async def _tend_once(self, key: Key, share: _Share, ask: bool) -> None:
        members, away = self._counts(key)
        if not members and not share.told:
            return
        home = await self._homes.home(_id(key), ask=ask)
        if home != share.home and share.home not in (0, self._host) and share.told:
            share.told = 0  # the new home has not been told yet
        share.home = home
        if home == self._host:
            share.told = 0
            self._serve(key)
            return
        request = ShareRequest(name=key[0], filter=key[1], members=members, away=away)
        await self._methods.ask(home, SHARE, request, self._settings.call)
        share.told = members
        self._give_up(key)

    def _serve_alone(self, key: Key, share: _Share, error: TreecastError) -> None:
        """Serves the members here while the coordinator is away. What is published elsewhere is not affected:
        the host that it is published at still chooses one host."""
        if error.fault is Fault.COORDINATOR_UNAVAILABLE and share.home == 0:
            self._hub.shares.root(*key)
            self._counters.shares_alone += 1
        self._settle(share)

    def _serve(self, key: Key) -> None:
        """Acts as the home from now on."""
        self._here.add(key)
        self._hub.shares.root(*key)

    def _give_up(self, key: Key) -> None:
        """Stops acting as the home: drops other hosts' members."""
        self._here.discard(key)
        for place in [place for place in self._members if place[0] == key]:
            self._set_members(place, 0)
        self._hub.shares.unroot(*key)

    # --- members of other hosts

    def announced(self, host: int, key: Key, wanted: bool) -> None:
        """Another host has announced members, or has withdrawn that."""
        hosts = self._announced.setdefault(key, {})
        if wanted:
            hosts[host] = None
        else:
            hosts.pop(host, None)
        if not hosts:
            del self._announced[key]
        self._hub.shares.known(*key)
        if self._hub.shares.get(*key) is None:
            self._here.discard(key)

    def _joined(self, host: int, request: ShareRequest, body: memoryview) -> tuple[Nothing, Buffer]:
        """Takes another host's number of members, as the home.

        A host calls this only if the coordinator named this host as the home.
        """
        if not request.away <= request.members <= _MOST_MEMBERS or not request.name or not request.filter:
            raise TreecastError(
                Fault.INVALID_REQUEST, "a shared subscription needs a name, a filter and members"
            )
        key = (request.name, request.filter)
        share = self._shares.get(key)
        if share is not None and share.home not in (0, self._host):
            raise TreecastError(Fault.NOT_COORDINATOR, f"{_id(key)} is not at home here")
        if request.members:
            self._serve(key)
        self._set_members((key, host), request.members - request.away)
        self._pump(key)
        return Nothing(), b""

    def _set_members(self, place: tuple[Key, int], wanted: int) -> None:
        key, host = place
        members = self._members.setdefault(place, [])
        while len(members) < wanted:
            member = RemoteMember(self._hub.routes.next_serial(), host, self, key)
            subscription = Subscription(member, key[1], _QOS, False, True)
            members.append(subscription)
            self._hub.shares.subscribe(key[0], subscription)
        while len(members) > wanted:
            self._hub.shares.unsubscribe(key[0], members.pop().subscriber, key[1])
        if not members:
            del self._members[place]

    # --- hosts come and go, homes move

    def host_up(self, host: int) -> None:
        """Tells a newly connected home its members again: it may be a new run."""
        for key, share in list(self._shares.items()):
            if share.home in (0, host):
                self._tend(key)
        self._pump_all()

    def host_down(self, host: int) -> None:
        """Looks for a new home: the coordinator appoints one if the host stays away for long."""
        for key, share in list(self._shares.items()):
            if share.home == host:
                self._tend(key)

    def host_left(self, host: int, unsettled: list[Message]) -> None:
        """Forgets a host that has left the cluster. Its sessions have ended: what was on the way to their
        members goes to others, except for QoS 2, which they may have received."""
        for place in [place for place in self._members if place[1] == host]:
            self._set_members(place, 0)
        for message in unsettled:
            if message.qos == 1 and message.topic.startswith(_ADDRESSED):
                meant, key, topic = read_envelope(message.topic)
                if meant == host:
                    self._hub.shares.hand_to(*key, _opened(message, topic))

    def moved(self, id: str, host: int) -> None:
        """Applies the coordinator's notice of a home's host."""
        key = _key(id)
        share = self._shares.get(key)
        if share is not None and share.home != host:
            if share.home == self._host:
                share.home = 0
            self._tend(key)
        elif share is None and host != self._host:
            self._give_up(key)
        self._pump(key)


def _id(key: Key) -> str:
    """Returns the shared subscription's id at the coordinator."""
    return (key[0] + b"/" + key[1]).decode()


def _key(id: str) -> Key:
    name, _, filter = id.encode().partition(b"/")
    return name, filter


def _is_local(key: Key) -> bool:
    """Whether the topics are local to each host, and so are the members."""
    return key[1].startswith(b"$")


def pattern_of(key: Key) -> Pattern:
    """Returns the pattern by which a host announces members."""
    return (_LEVEL, key[0].decode(), *key[1].decode().split("/"))


def share_of(pattern: Pattern) -> Key | None:
    """Returns the shared subscription of an announced pattern; None if it is another pattern."""
    if len(pattern) < 3 or pattern[0] != _LEVEL or not pattern[1]:
        return None
    return pattern[1].encode(), "/".join(pattern[2:]).encode()


def enveloped(message: Message, key: Key, host: int) -> Message:
    """Returns the message in its envelope for a member on another host."""
    topic = b"%s%d/%s/%s\0%s" % (_ADDRESSED, host, *key, message.topic)
    return Message(
        topic, message.payload, message.qos, message.retain, message.properties, message.expires_at
    )


def _opened(message: Message, topic: bytes) -> Message:
    return Message(
        topic, message.payload, message.qos, message.retain, message.properties, message.expires_at
    )


def read_envelope(topic: bytes) -> tuple[int, Key, bytes]:
    """Returns (host that it is for; 0: any, (name, filter), the message's topic).

    Raises INVALID_TOPIC if it is no envelope.
    """
    head, zero, rest = topic.partition(b"\0")
    host = b"0"
    if head.startswith(_ADDRESSED):
        host, _, share = head.removeprefix(_ADDRESSED).partition(b"/")
    else:
        share = head.removeprefix(_PLAIN)
    name, slash, filter = share.partition(b"/")
    if not (zero and slash and name and filter and rest and host.isdigit()):
        raise TreecastError(Fault.INVALID_TOPIC, f"{topic!r} is for no shared subscription")
    return int(host), (name, filter), rest
