"""The controller at work: asks daemons what they want, and has switches forward just that.

A daemon that does not answer keeps what it said last: its rules stay. One that has never answered gets what
is for it alone. Rules that are too late cost repairs and lose nothing: origins know filters by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.rpc import Unreachable
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.control.links.sessions import LastingSession
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused
from treecast.middleware.dataplane.subscriptions.entries import Installation
from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.diagram import DiagramTooLarge
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.parse import parse
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.content import ContentHost, TopicWish
from treecast.middleware.routing.network import RoutingError

from .description import Described
from .tables import ContentTables, both, generation, second, turned

_log = Log(__name__)

CALL_SECONDS: Final = 10.0
MOST_WISHES: Final = 10_000  # of one host: beyond it, it gets all messages
FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, TreecastError)
Wishes = tuple[TopicWish, ...]


class Controller:
    """One network's. `run` works until `ended` is set."""

    def __init__(self, described: Described, run: int, trust: Path | None = None) -> None:
        """`run`: higher than that of any earlier controller. `trust`: a folder with a certificate, in a
        secured cluster."""
        self._described = described
        self._trust = trust
        self._layout = described.header()
        self._network = described.network()
        self._macs = described.macs()
        self._tables = ContentTables(self._layout)
        program = self._tables.program()
        self._sessions = {
            name: LastingSession(name, address, run, lambda packet: None, program)
            for name, address in described.switches.items()
        }
        self._wishes: dict[str, Wishes] = {}  # of hosts, as they said last
        self._held: dict[str, Rules] = {}  # by switch
        self.ended = asyncio.Event()
        self._said = ""

    async def start(self) -> None:
        """Returns when all switches bring plain traffic to hosts. Raises if one cannot be programmed."""
        faults = await self._program()
        for fault in faults.values():
            raise fault

    async def close(self) -> None:
        await asyncio.gather(*[session.close() for session in self._sessions.values()])

    async def run(self) -> None:
        while not self.ended.is_set():
            try:
                await self._ask_all()
                for fault in (await self._program()).values():
                    raise fault
                self._said = ""
            except FAULTS as error:
                self._say(str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), self._described.look)

    # --- what hosts want

    async def _ask_all(self) -> None:
        asked = {name: host.control for name, host in self._described.hosts.items() if host.control}
        answers = await asyncio.gather(*[asyncio.to_thread(self._ask, address) for address in asked.values()])
        for name, wishes in zip(asked, answers, strict=True):
            if wishes is not None:
                self._wishes[name] = wishes

    def _ask(self, address: str) -> Wishes | None:
        try:
            with DaemonClient(address, timeout=CALL_SECONDS, trust=self._trust) as client:
                return wishes_of(client.list_wishes())
        except (TreecastError, Unreachable) as error:
            _log.warning("daemon does not say what it wants", address=address, error=error)
            return None

    # --- switches

    async def _program(self) -> dict[str, BaseException]:
        """Brings all switches to the rules for what hosts want. Returns faults by switch."""
        wanted = {name: ContentHost(mac, self._wishes.get(name, ())) for name, mac in self._macs.items()}
        rules = self._network.rules(wanted, self._layout)
        plain = {
            name: ContentHost(mac, _without_filters(wanted[name].wishes)) for name, mac in self._macs.items()
        }
        loose = self._network.rules(plain, self._layout)
        outcomes = await asyncio.gather(
            *[self._bring(name, rules[name], loose[name]) for name in self._sessions], return_exceptions=True
        )
        changed = [name for name, one in zip(self._sessions, outcomes, strict=True) if one is True]
        if changed:
            count = sum(len(host.wishes) for host in wanted.values())
            print(f"programmed={','.join(changed)} wishes={count}", flush=True)
        named = zip(self._sessions, outcomes, strict=True)
        return {name: one for name, one in named if isinstance(one, BaseException)}

    async def _bring(self, name: str, rules: Rules, loose: Rules) -> bool:
        """Makes a switch hold rules, make before break. Returns whether anything changed."""
        session = self._sessions[name]
        if not await session.connect() and self._held.get(name) == rules:
            return False
        found = await asyncio.to_thread(self._compiled, name, rules, loose)
        self._held.pop(name, None)  # until it is known to be there
        old = await session.read()
        new = generation(found, second=not second(old))
        await session.bring_to(both(old, new))
        await session.bring_to(turned(old, new))
        await session.bring_to(new)
        self._held[name] = rules
        return True

    def _compiled(self, name: str, rules: Rules, loose: Rules) -> Installation:
        try:
            return self._tables.installation(rules)
        except (FilterError, DiagramTooLarge) as error:
            _log.warning("switch forwards by topics alone", switch=name, reason=error)
            return self._tables.installation(loose)

    def end(self) -> None:
        self.ended.set()

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"content: {text}", file=sys.stderr, flush=True)


def wishes_of(found: Sequence[pb.TopicWish]) -> Wishes:
    """Returns wishes as a daemon names them. A filter that cannot be read, as of a later version, is none;
    patterns with wildcards are for any topic."""
    if len(found) > MOST_WISHES:
        return (TopicWish(""),)
    wishes: dict[TopicWish, None] = {}
    for one in found:
        topic = "" if "+" in one.topics or "#" in one.topics else one.topics
        try:
            wishes[TopicWish(topic, parse(one.filter) if one.filter else None)] = None
        except FilterError:
            wishes[TopicWish(topic)] = None
    return tuple(wishes)


def _without_filters(wishes: Wishes) -> Wishes:
    return tuple(dict.fromkeys([TopicWish(one.topic) for one in wishes]))
