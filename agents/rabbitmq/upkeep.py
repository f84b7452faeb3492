"""`Upkeep`: keeps exchanges, this site's interest and the bindings of the agent's queue right.

The server's management API says what is there. It is asked when the server's event exchange reports a change,
when other sites' definitions change, and every `poll_seconds` (rarely, while there are events). The interest
of other sites comes by itself, and only changes the bindings of the agent's queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from pamqp import base, commands

from treecast.agents.common.status import Trouble
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.wishes import Pattern
from treecast.middleware.relay.brokerless import BrokerlessHost

from .bindings import difference, kept, own_bindings, wanted_elsewhere, wanted_here
from .connection import AmqpConnection, CallRefused, ConnectionLost
from .exchanges import Definition, Plan, announce, plan, prefix_of, read_all
from .inbound import Inbound
from .management import ExchangeFound, Management, ManagementError, PolicyFound
from .outbound import Outbound
from .settings import RabbitSettings

_log = Log(__name__)
_CALM = 0.05  # seconds in which changes are gathered
_RARELY = 15  # polls are so much rarer while the server reports changes by itself
_MANAGEMENT, _COORDINATOR = "management", "definitions"


class Upkeep:
    """The upkeep of one server. `ready`: exchanges and bindings were put right since the last `attach`."""

    def __init__(
        self,
        host: BrokerlessHost,
        management: Management,
        settings: RabbitSettings,
        queue: str,
        inbound: Inbound,
        outbound: Outbound,
        troubles: dict[str, Trouble],
        remember: Callable[[list[Pattern]], None],
    ) -> None:
        """`queue`: the agent's own. `troubles`: where it says what is wrong. `remember`: stores what this
        site wants."""
        self.ready = asyncio.Event()
        self.events = False  # whether the server reports changes
        self._host = host
        self._management = management
        self._settings = settings
        self._queue = queue
        self._inbound = inbound
        self._outbound = outbound
        self._troubles = troubles
        self._remember = remember
        self._policies: list[PolicyFound] = []  # whose exchanges are carried
        self._wanted: set[Pattern] = set()
        self._missed: set[Pattern] = set()  # wanted, and not found by the last look
        self._counted = 0.0  # the loop's time of the last look that counted as one
        self._bound: set[tuple[str, str]] = set()
        self._carried: dict[str, str] = {}
        self._connection: AmqpConnection | None = None
        self._channel = 0
        self._woken = asyncio.Event()
        self._look = False
        self._busy = asyncio.Lock()

    def remembered(self, patterns: Iterable[Pattern]) -> None:
        """Wants what this site wanted when the agent ended, until the server says what it wants now."""
        for pattern in patterns:
            self._wanted.add(pattern)
            self._host.want(pattern)

    def attach(self, connection: AmqpConnection, channel: int) -> None:
        """Uses a channel of a new connection for changes at the server."""
        self._connection, self._channel = connection, channel

    def detach(self) -> None:
        self._connection = None
        self.ready.clear()

    # --- when to look

    def look_again(self) -> None:
        """The server may have changed."""
        self._look = True
        self._woken.set()

    def others_changed(self) -> None:
        """The interest of another site has changed."""
        self._woken.set()

    def defined(self, keys: Iterable[str]) -> None:
        """Definitions have changed at the coordinator."""
        start = prefix_of(self._settings.vhost)
        if any(key.startswith(start) for key in keys):
            self.look_again()

    async def first(self) -> None:
        """Puts all right for a new connection; returns when it is. Raises ConnectionLost."""
        while not await self._put_right():  # noqa: ASYNC110  # nothing tells when the management plugin is up
            await asyncio.sleep(1.0)
        self.ready.set()

    async def run(self) -> None:
        """Keeps all right, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._settings.poll_seconds * (_RARELY if self.events else 1)):
                    await self._woken.wait()
                await asyncio.sleep(_CALM)
            except TimeoutError:
                self._look = True
            self._woken.clear()
            look, self._look = self._look, False
            if not self.ready.is_set():
                continue
            try:
                await (self._put_right() if look else self._rebind())
            except (ConnectionLost, CallRefused) as error:
                _log.info("upkeep is interrupted", reason=error)

    # --- putting right

    async def _put_right(self) -> bool:
        """Returns whether the server and the coordinator could be asked. Raises ConnectionLost."""
        async with self._busy:
            try:
                if self._settings.policies:
                    there = await self._management.policies()
                    self._policies = [one for one in there if self._settings.names_policy(one.name)]
                local = [one for one in await self._management.exchanges() if self._carries(one.name)]
                made = self._plan(local)
                clashes = {**made.clashes, **await self._announce(made)}
                carried = {name: kind for name, kind in made.carried.items() if name not in clashes}
                carried = await self._declare(made, carried, clashes)
                bindings = {name: await self._management.bindings(name) for name in carried}
                self._bound = own_bindings(await self._management.bindings_of_queue(self._queue))
            except ManagementError as error:
                self._say(_MANAGEMENT, str(error))
                return False
            self._say(_MANAGEMENT, "")
            self._say_clashes(clashes)
            self._carry(carried)
            self._want(wanted_here(self._settings.vhost, carried, bindings, self._queue))
        await self._rebind()
        return True

    def _carries(self, exchange: str) -> bool:
        """Whether an exchange is carried at this site, by its name or by a policy."""
        return self._settings.wants(exchange) or any(one.applies_to(exchange) for one in self._policies)

    def _plan(self, local: list[ExchangeFound]) -> Plan:
        rabbit = self._settings
        shared = read_all(rabbit.vhost, self._host.defined(prefix_of(rabbit.vhost)))
        asked = {one.name: Definition(one.type, one.durable) for one in rabbit.declare}
        return plan(local, asked, {name: one for name, one in shared.items() if self._carries(name)})

    async def _announce(self, made: Plan) -> dict[str, str]:
        try:
            clashes = await announce(self._host, self._settings.vhost, made)
        except TreecastError as error:
            self._say(_COORDINATOR, f"exchanges cannot be announced to other sites: {error}")
            return {}
        self._say(_COORDINATOR, "")
        return clashes

    async def _declare(self, made: Plan, carried: dict[str, str], clashes: dict[str, str]) -> dict[str, str]:
        """Declares what is missing at the server. Returns what is carried; what it refuses clashes."""
        for name, wanted in made.declare.items():
            if name not in carried:
                continue
            declare = commands.Exchange.Declare(
                exchange=name,
                exchange_type=wanted.type,
                durable=wanted.durable,
                auto_delete=wanted.auto_delete,
                arguments=wanted.arguments,
            )
            if (refused := await self._change(declare)) is not None:
                clashes[name] = f"exchange {name} cannot be declared: {refused}"
                del carried[name]
        return carried

    async def _change(self, method: base.Frame) -> str | None:
        """Makes a change at the server. Returns its refusal, if it refuses. Raises ConnectionLost."""
        connection = self._connection
        if connection is None:
            raise ConnectionLost("the server is not connected")
        try:
            await connection.call(self._channel, method)
        except CallRefused as error:
            await connection.open_channel(self._channel)
            return str(error)
        return None

    def _carry(self, carried: dict[str, str]) -> None:
        if carried != self._carried:
            self._carried = carried
            self._inbound.use_kinds(carried)
            self._outbound.use_exchanges({name.encode() for name in carried})
            _log.info("exchanges are carried", exchanges=", ".join(sorted(carried)))

    def _want(self, found: set[Pattern]) -> None:
        """Announces what this site wants. A pattern goes once two looks, some time apart, have missed it: a
        server that starts may not list all its bindings, and other sites would drop what it wants."""
        loop, apart = asyncio.get_running_loop(), self._settings.poll_seconds
        counts = loop.time() - self._counted >= apart / 2  # looks that events ask for may follow at once
        wanted, self._missed = kept(self._wanted, found, self._missed if counts else set())
        if counts:
            self._counted = loop.time()
        if self._missed:
            loop.call_later(apart, self.look_again)
        added, removed = difference(self._wanted, wanted)
        if not added and not removed:
            return
        for pattern in added:
            self._host.want(pattern)
        for pattern in removed:
            self._host.unwant(pattern)
        self._wanted = wanted
        self._remember(sorted(wanted))

    async def _rebind(self) -> None:
        """Binds the agent's queue to what other sites want. Raises ConnectionLost."""
        async with self._busy:
            patterns = [one for found in self._host.wanted_by_others().values() for one in found]
            needed = wanted_elsewhere(self._settings.vhost, self._carried, patterns)
            added, removed = difference(self._bound, needed)
            for exchange, key in added:
                bind = commands.Queue.Bind(queue=self._queue, exchange=exchange, routing_key=key)
                if (refused := await self._change(bind)) is None:
                    self._bound.add((exchange, key))
                else:
                    _log.error("queue cannot be bound", exchange=exchange, key=key, reason=refused)
            for exchange, key in removed:
                unbind = commands.Queue.Unbind(queue=self._queue, exchange=exchange, routing_key=key)
                await self._change(unbind)
                self._bound.discard((exchange, key))

    # --- what is wrong

    def _say(self, what: str, detail: str) -> None:
        if detail:
            if what not in self._troubles:
                _log.warning("exchanges and bindings cannot be put right", part=what, reason=detail)
            self._troubles[what] = Trouble(what, detail)
        else:
            self._troubles.pop(what, None)

    def _say_clashes(self, clashes: dict[str, str]) -> None:
        for what in [what for what in self._troubles if what.startswith("exchange ")]:
            if what.removeprefix("exchange ") not in clashes:
                del self._troubles[what]
        for name, detail in clashes.items():
            if f"exchange {name}" not in self._troubles:
                _log.error("exchange is not carried", exchange=name, reason=detail)
            self._troubles[f"exchange {name}"] = Trouble(f"exchange {name}", detail)
