"""Chooses the carrier of streams to other hosts: unicast first, another one if it pays off and works.

    unicast --a carrier may reach enough hosts--> state id allotted --> hosts asked to join --> probed by it
            <--too few left, or a better one--                   confirmed by their answers on the channel

The fabric's registry tells which of its carriers may reach the hosts of a stream, in order of preference. If
a carrier's packets name their receivers, no state id is allotted and hosts have nothing to join: they are
probed at once. A group is formed as soon as a stream has enough receivers, to be ready before a burst.
Groups take state in the network: once a host has `eager` groups, each further one needs a minimum rate.

A choice applies to a topic, with all its partitions that this host leads, or to a set of hosts, with the
event streams to that set. Hosts that have answered a probe receive by the carrier, the others by unicast.
Probes are repeated: a host that stops answering, or has to ask for many of its records, goes back to unicast
until it answers again. Without the coordinator no state id can be allotted, and streams that need one stay
on unicast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.fabric.carriers.carrier import Carrier
from treecast.middleware.fabric.channel import Method, Methods, Natural, Nothing
from treecast.middleware.fabric.core.timing import Random
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .carrier_group import CarrierSettings, Group, Levels, Member
from .carrier_troubles import Trouble, why_lost
from .group_rate import GroupRate

_log = Log(__name__)

Allot = Callable[[Sequence[str]], Awaitable[int]]
Release = Callable[[int], Awaitable[None]]
_Asked = tuple[str, int]  # how groups are addressed, and a state id


class Carried(Protocol):
    """A stream of this host that a group may carry. Streams with the same `levels` share a group."""

    origin: Origin

    @property
    def levels(self) -> Levels:
        """The levels for which the coordinator allots the group's state id."""

    def hosts(self) -> list[int]:
        """Returns the receivers."""


class GroupRequest(Struct, frozen=True, array_like=True):
    """Asks the receiver to join a group of streams, or to leave it because nothing more is sent to it.

    `form`: how the group is addressed; a name that all carriers with this addressing share.
    """

    state_id: Natural
    form: str = ""


class ProbeSeen(Struct, frozen=True, array_like=True):
    """Notifies the origin that its probe has arrived by the group."""

    state_id: Natural
    nonce: Natural


GROUP_JOIN: Final = Method(61, GroupRequest, Nothing)
GROUP_LEAVE: Final = Method(62, GroupRequest, Nothing)
PROBE_SEEN: Final = Method(63, ProbeSeen, ProbeSeen)


class CarrierChoice:
    """Both ends of carrier choice: the origin, which chooses, and the member, which joins and answers
    probes."""

    def __init__(
        self,
        fabric: Fabric,
        methods: Methods,
        allot: Allot,
        release: Release,
        settings: CarrierSettings,
        counters: RelayCounters,
        random: Random,
    ) -> None:
        """`allot` returns the state id for a group's levels, or raises COORDINATOR_UNAVAILABLE."""
        self._sources: list[Iterable[Carried]] = []
        self._fabric = fabric
        self._methods = methods
        self._allot = allot
        self._release = release
        self._settings = settings
        self._counters = counters
        self._random = random
        self._groups: dict[Levels, Group] = {}
        self._rates: dict[Levels, GroupRate] = {}
        self._costly: set[Levels] = set()  # levels whose groups take state in the network
        self._asked: dict[_Asked, set[int]] = {}  # -> the hosts that asked this one to join
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._unheard: set[int] = set()  # hosts that did not answer recent probes
        methods.register(GROUP_JOIN, self._join)
        methods.register(GROUP_LEAVE, self._leave)
        methods.register(PROBE_SEEN, self._seen)

    def carry(self, streams: Iterable[Carried]) -> None:
        """Manages these streams from now on. `streams` is iterated at each check."""
        self._sources.append(streams)

    def begun(self, stream: Carried) -> None:
        """Handles a new stream: forms its group without waiting for the next tick. A burst waits for it."""
        if self._pick([stream], set(stream.hosts()), groups=self._has_room(stream.levels)) is not None:
            self._await_group([stream])
        self.soon()

    def _await_group(self, streams: list[Carried]) -> None:
        """Makes the streams wait for their group if it may reach several of their hosts.

        Hosts that did not answer recent probes do not count.
        """
        hosts = {host for stream in streams for host in stream.hosts()}
        if self._timer is not None and len(hosts - self._unheard) >= max(2, self._settings.hosts):
            for stream in streams:
                stream.origin.await_group(self._settings.wait)

    def _pick(self, streams: list[Carried], hosts: set[int], *, groups: bool) -> Carrier | None:
        """Returns the carrier for these streams, or None for unicast.

        `groups`: whether they may take state in the network.
        """
        by_content = any(stream.origin.by_content for stream in streams)
        enough = self._settings.hosts if groups else 0
        return self._fabric.carriers.pick(hosts, _longest(streams), enough, by_content=by_content)

    def _has_room(self, levels: Levels) -> bool:
        """Whether the group of `levels` is among the first `eager` ones, which need no rate."""
        return len(self._costly) - (levels in self._costly) < self._settings.eager

    def soon(self) -> None:
        """Schedules the next check at once because receivers have changed."""
        if self._timer is not None and not self._hurried:
            self._hurried = True
            self._timer.cancel()
            self._timer = self._loop.call_later(self._settings.soon, self._tick)

    def drop(self, streams: Iterable[Carried]) -> None:
        """Stops managing these streams. Their groups are dissolved at the next check."""
        self._sources.remove(streams)

    # --- life

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fabric.on_probe = self._probed
        self._fabric.on_unreached = self._unreached
        self._fabric.on_reach = self.soon
        self._fabric.on_path = lambda host: self.soon()
        if self._settings.hosts and self._fabric.carriers.several:
            self._timer = self._loop.call_later(self._settings.tick, self._tick)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [*self._tasks, *(group.task for group in self._groups.values() if group.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- as a member

    def _join(self, host: int, request: GroupRequest, body: memoryview) -> tuple[Nothing, Buffer]:
        asked = request.form, request.state_id
        # Several origins may use the group: it is joined for the first of them, and left with the last
        # (`_left`).
        if asked not in self._asked:
            try:
                self._fabric.carriers.of_form(request.form).join(request.state_id)
            except (OSError, ValueError) as error:
                raise TreecastError(
                    Fault.NOT_SUPPORTED, f"this host cannot join the group: {error}"
                ) from error
        self._asked.setdefault(asked, set()).add(host)
        return Nothing(), b""

    def _leave(self, host: int, request: GroupRequest, body: memoryview) -> tuple[Nothing, Buffer]:
        self._left(host, (request.form, request.state_id))
        return Nothing(), b""

    def _left(self, host: int, asked: _Asked) -> None:
        hosts = self._asked.get(asked)
        if hosts is None:
            return
        hosts.discard(host)
        if not hosts:
            del self._asked[asked]
            form, state_id = asked
            self._fabric.carriers.of_form(form).leave(state_id)

    def _probed(self, host: int, state_id: int, nonce: int) -> None:
        """Reports a probe that arrived by the group or in a packet that named this host."""
        self._methods.tell(host, PROBE_SEEN, ProbeSeen(state_id, nonce))

    def host_up(self, host: int) -> None:
        """Resets a host's memberships: it may be a new run, which gets unicast until it has joined again."""
        self._unheard.discard(host)
        for group in self._groups.values():
            if host in group.members:
                group.admit(host, self._loop.time())
                self._use(group, self._of(group.levels))

    def host_left(self, host: int) -> None:
        """Leaves all groups of a host that has left the cluster."""
        self._unheard.discard(host)
        for asked in list(self._asked):
            self._left(host, asked)

    # --- as an origin

    def group_of(self, levels: Levels) -> tuple[int | None, list[int]]:
        """Returns (state id, confirmed hosts) of a group, for inspection."""
        group = self._groups.get(levels)
        if group is None:
            return None, []
        return group.state_id, sorted(group.confirmed)

    def why_unicast(self, stream: Carried, host: int) -> str:
        """Returns why this host gets live data of the stream by unicast now, for inspection."""
        group = self._groups.get(stream.levels)
        if group is None:
            return self._why_no_group(stream)
        member = group.members.get(host)
        if member is None:
            return f"{group.carrier} does not reach it"
        if group.state_id is None:
            return f"the coordinator has allotted no state id for {group.carrier} yet"
        if not member.joined:
            return f"cannot join: {member.refused}" if member.refused else "has not joined the group yet"
        if not member.confirmed:
            return self._why_out(group, member) or f"has not answered a probe of {group.carrier} yet"
        return f"{group.carrier} reaches no other host: a group needs two"

    def _why_out(self, group: Group, member: Member) -> str:
        lost = group.lost
        standing = member.standing
        if not standing.why and lost and not group.confirmed:  # the group reaches nobody, it neither
            standing = group.members[lost[0]].standing
        if not standing.why:
            return ""
        advice = self._fabric.carriers.advice(group.carrier)
        return why_lost(standing.why, self._loop.time() - standing.since, advice)

    def troubles(self) -> list[Trouble]:
        """Returns the groups that do not reach hosts which they have reached before."""
        streams = self._streams()
        used = [(group, streams[levels]) for levels, group in self._groups.items() if levels in streams]
        return [self._trouble(group, found[0]) for group, found in used if group.lost] + [
            Trouble(name, one.address, one.name, one.lost, one.reached, "they do not answer", one.advice)
            for name, one in self._fabric.carriers.own_groups()
            if one.lost
        ]

    def _trouble(self, group: Group, stream: Carried) -> Trouble:
        carriers, lost = self._fabric.carriers, group.lost
        why = group.members[lost[0]].standing.why
        if not group.confirmed:
            lost = sorted(group.members)
        copies = carriers.copies(carriers.number(group.carrier), stream.origin.key, group.state_id or 0, lost)
        return Trouble(
            group.carrier,
            copies[0].address if group.form and copies else "",
            group.name,
            tuple(lost),
            len(group.confirmed),
            why,
            carriers.advice(group.carrier),
        )

    def _why_no_group(self, stream: Carried) -> str:
        hosts, settings = set(stream.hosts()), self._settings
        if not settings.hosts or not self._fabric.carriers.several:
            refusals = [f"{one.name}: {one.refusal}" for one in self._fabric.carriers if one.refusal]
            return "; ".join(refusals) or "no other carrier is in use here"
        room = self._has_room(stream.levels)
        reasons = self._fabric.carriers.why_none(
            hosts, _longest([stream]), settings.hosts if room else 0, by_content=stream.origin.by_content
        )
        if not reasons:
            return "a carrier is being chosen"
        text = "; ".join([f"{name}: {reason}" for name, reason in reasons.items()])
        return text if room else f"{text}: there are {settings.eager} groups, and its rate is low"

    def _streams(self) -> dict[Levels, list[Carried]]:
        found: dict[Levels, list[Carried]] = {}
        for source in self._sources:
            for stream in source:
                found.setdefault(stream.levels, []).append(stream)
        return found

    def _of(self, levels: Levels) -> list[Carried]:
        return [stream for source in self._sources for stream in source if stream.levels == levels]

    def _tick(self) -> None:
        self._hurried = False
        # Set first, so that an error in one check does not end the checks.
        self._timer = self._loop.call_later(self._settings.tick, self._tick)
        found = self._streams()
        for levels in [levels for levels in self._groups if levels not in found]:
            self._dissolve(levels, [])
        for levels in [levels for levels in self._rates if levels not in found]:
            del self._rates[levels]
        for levels, streams in found.items():
            self._look_at(levels, streams)

    def _look_at(self, levels: Levels, streams: list[Carried]) -> None:
        hosts = {host for stream in streams for host in stream.hosts()}
        group = self._groups.get(levels)
        carrier = self._pick(streams, hosts, groups=self._earns(levels, streams))
        if group is not None and (carrier is None or carrier.name != group.carrier):
            self._dissolve(levels, streams)
            group = None
        if carrier is None:
            return
        if group is None:
            group = self._form(levels, carrier)
            self._await_group(streams)
        group.carries(_longest(streams), self._loop.time())
        reached = carrier.reach(hosts).hosts
        for host in reached - group.members.keys():
            group.admit(host, self._loop.time())
        for host in group.members.keys() - reached:
            self._dismiss(group, host)
        if group.state_id is None or any(
            not one.joined and not one.refused for one in group.members.values()
        ):
            self._gather(group)
        self._judge(group, streams)
        self._probe(group)
        self._use(group, streams)
        if group.probe_wait(self._loop.time()) < self._settings.tick:  # sooner than the next tick
            self._again_soon()

    def _form(self, levels: Levels, carrier: Carrier) -> Group:
        group = self._groups[levels] = Group(levels, carrier, self._settings)
        if group.form:
            self._costly.add(levels)
        return group

    def _again_soon(self) -> None:
        if self._timer is not None and self._settings.probe_first < self._settings.tick:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._settings.probe_first, self._tick)

    def _earns(self, levels: Levels, streams: list[Carried]) -> bool:
        """Whether the group is among the first `eager` ones or has the rate."""
        if self._has_room(levels):
            return True
        now = self._loop.time()
        sent = sum([stream.origin.sender.live_bytes for stream in streams])
        rate = self._rates.get(levels)
        if rate is None:
            # As if nothing had been sent up to a tick ago: a burst that begins now counts at once.
            rate = self._rates[levels] = GroupRate(0, now - self._settings.tick)
        return rate.look(sent, self._settings, now)

    def _gather(self, group: Group) -> None:
        if group.task is None:
            group.task = self._loop.create_task(self._bring_in(group), name=f"group of {group.name}")

    async def _bring_in(self, group: Group) -> None:
        """Gets a state id, if there is none yet, and asks new members to join."""
        try:
            if group.state_id is None:
                group.state_id = await self._allot(group.levels)
            new = [(host, one) for host, one in group.members.items() if not one.joined and not one.refused]
            await asyncio.gather(*[self._invite(group, host, one) for host, one in new])
            group.tries = 0
            self._probe(group)
            self.soon()
        except TreecastError as error:
            _log.info("stream stays on unicast", stream=group.name, error=error)
            for stream in self._of(group.levels):
                stream.origin.group_stands()
            # The task stays in place meanwhile, so that no other attempt begins.
            await asyncio.sleep(self._settings.allot_again)
        finally:
            group.task = None

    async def _invite(self, group: Group, host: int, member: Member) -> None:
        request = GroupRequest(group.state_id or 0, group.form)
        try:
            await self._methods.ask(host, GROUP_JOIN, request, self._settings.call)
            member.joined = True
        except TreecastError as error:
            if error.fault is Fault.NOT_SUPPORTED:
                member.refused = error.detail
                _log.info("host stays on unicast", host=host, reason=error.detail)

    def _dismiss(self, group: Group, host: int) -> None:
        member = group.members.pop(host)
        if member.joined and group.form and group.state_id is not None:
            self._spawn(self._tell_leave(host, group.form, group.state_id))

    async def _tell_leave(self, host: int, form: str, state_id: int) -> None:
        request = GroupRequest(state_id, form)
        try:
            await self._methods.ask(host, GROUP_LEAVE, request, self._settings.call)
        except TreecastError as error:
            _log.info("host cannot leave a group yet", host=host, state=state_id, error=error)

    def _dissolve(self, levels: Levels, streams: list[Carried]) -> None:
        group = self._groups.pop(levels)
        self._costly.discard(levels)
        # Back on unicast before the members leave: nothing is sent to a group that loses them.
        for stream in streams:
            stream.origin.drop_carrier()
        if group.task is not None:
            group.task.cancel()
        for host in list(group.members):
            self._dismiss(group, host)
        if group.form and group.state_id is not None:
            self._spawn(self._give_back(group.state_id))

    async def _give_back(self, state_id: int) -> None:
        try:
            await self._release(state_id)
        except TreecastError as error:
            _log.info("state id cannot be returned yet", state=state_id, error=error)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- probing

    def _probe(self, group: Group) -> None:
        members = [member for member in group.members.values() if member.joined]
        if not members or group.state_id is None:
            return
        now = self._loop.time()
        wait = group.probe_wait(now)
        if now - group.probed < wait:
            return
        quick = wait <= self._settings.probe_first
        for host, member in group.members.items():
            if not member.joined:
                continue
            if not member.confirmed and not quick:
                self._unheard.add(host)
            if member.standing.asked(now, counts=not quick):
                self._lost(group, host)
        group.probed = now
        group.tries += 1
        # Odd, and thus never 0.
        nonce = int(self._random.random() * 2**63) | 1
        group.nonces.append(nonce)
        try:
            joined = [host for host, member in group.members.items() if member.joined]
            self._fabric.send_probe(group.carrier, group.state_id, nonce, joined, group.segment_bytes)
            self._counters.group_probes += 1
        except (OSError, ValueError) as error:
            _log.info("carrier cannot be probed", stream=group.name, carrier=group.carrier, error=error)

    def _seen(self, host: int, notice: ProbeSeen, body: memoryview) -> tuple[ProbeSeen, Buffer]:
        # Probes of a path's length are answered by the same call.
        if self._fabric.paths.seen(host, notice.nonce):
            return notice, b""
        for group in self._groups.values():
            if group.state_id == notice.state_id and notice.nonce in group.nonces:
                member = group.members.get(host)
                if member is not None:
                    self._answered(group, host, member)
                    self._use(group, self._of(group.levels))
        return notice, b""

    def _answered(self, group: Group, host: int, member: Member) -> None:
        self._unheard.discard(host)
        was_lost = member.standing.lost
        if member.standing.answered(self._loop.time()):
            self._counters.group_hosts_confirmed += 1
            if was_lost:
                _log.info("group reaches a host again", group=group.name, carrier=group.carrier, host=host)

    def _lost(self, group: Group, host: int) -> None:
        """Tells that a member gets unicast from now on, until it returns."""
        self._counters.group_hosts_lost += 1
        group.doubt_last(self._loop.time())
        why = group.members[host].standing.why
        _log.warning(
            "group does not reach a host", group=group.name, carrier=group.carrier, host=host, why=why
        )

    def _unreached(self, origin: Origin, host: int) -> None:
        """Handles the fabric's finding that the carrier's packets do not arrive at `host`."""
        for levels, streams in self._streams().items():
            group = self._groups.get(levels)
            if group is None or host not in group.members:
                continue
            if any(stream.origin is origin for stream in streams):
                self._cut_off(
                    group,
                    host,
                    "packets of the group do not arrive" if group.form else "its packets do not arrive",
                )
                self._use(group, streams)
                return

    def _cut_off(self, group: Group, host: int, why: str) -> None:
        if group.members[host].standing.cut_off(why, self._loop.time()):
            self._lost(group, host)

    def _judge(self, group: Group, streams: list[Carried]) -> None:
        """Withdraws the confirmation of members that had a large share of their records repaired."""
        live: dict[int, int] = {}
        repaired: dict[int, int] = {}
        for stream in streams:
            for host, row in stream.origin.rows().items():
                live[host] = live.get(host, 0) + row.live
                repaired[host] = repaired.get(host, 0) + row.repaired
        for host, member in group.members.items():
            got, asked = live.get(host, 0) - member.live, repaired.get(host, 0) - member.repaired
            if not 0 <= got + asked < self._settings.much_of:
                member.live, member.repaired = live.get(host, 0), repaired.get(host, 0)
                if member.confirmed and asked > self._settings.much * (got + asked):
                    self._cut_off(group, host, f"{asked:,} of {got + asked:,} records had to be repaired")

    def _use(self, group: Group, streams: list[Carried]) -> None:
        """Puts the streams on the carrier for confirmed members, or back on unicast.

        A group needs two reached hosts: for one host, a group saves no copy.
        """
        confirmed = group.confirmed
        whole = group.task is None and all(one.confirmed or not one.joined for one in group.members.values())
        for stream in streams:
            reached = confirmed.intersection(stream.hosts())
            try:
                if group.state_id is not None and len(reached) >= (2 if group.form else 1):
                    stream.origin.use_carrier(group.carrier, reached, group.state_id)
                elif stream.origin.confirmed:
                    stream.origin.drop_carrier()
                if whole:
                    stream.origin.group_stands()
            except (OSError, ValueError) as error:
                _log.info("stream stays on unicast", stream=stream.origin.name, error=error)
                stream.origin.group_stands()


def _longest(streams: Sequence[Carried]) -> int:
    """The longest segment that any of these streams is cut to."""
    return max([stream.origin.sender.mtu for stream in streams], default=0)
