"""`OwnPlace`: the address of this host's fabric, while the addresses of its machine change.

    on the address of the settings --no interface has it--> on another one of its interface, or nowhere
                                   <--it is back, at once--

Where other hosts reach this one is told again with each move (`neighbours`). An address that DHCP has taken
away would stay bound: nothing would arrive there and nothing could be sent, while connections that this host
opens would go on from its new address, as if all was well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from treecast.middleware.fabric.sockets.address_watch import AddressWatch
from treecast.middleware.fabric.sockets.interfaces import (
    Interface,
    interface_of,
    is_here,
    lasting_addresses,
    network_of,
    successor,
)
from treecast.middleware.model.logs import Log

_log = Log(__name__)
_AGAIN: Final = 1.0  # seconds until a move that failed is tried again


class OwnPlace:
    """Implements `cluster.Life`. `trouble`: what is wrong with the address, as a sentence; empty if nothing
    is."""

    def __init__(self, move: Callable[[str], Awaitable[None]]) -> None:
        """`move` makes the fabric use another numeric address. It raises OSError if it cannot."""
        self.trouble = ""
        self._move = move
        self._watch = AddressWatch(self._changed)
        self._wanted = self._host = ""  # numeric: as the settings say, and as it is now
        self._interface: Interface
        self._placed = True  # an interface has the present address
        self._moving: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether no interface has the address that the fabric uses."""
        return bool(self.trouble) and not self._placed

    def at(self, host: str, interface: Interface) -> None:
        """Begins with this address. Call it before `start`. Empty: there is none to look after, as the fabric
        listens on all interfaces and others use a translated address."""
        self._wanted = self._host = host
        self._interface = interface
        self._near = network_of(host) if host else None

    async def start(self) -> None:
        if self._wanted:
            self._watch.start()
            self._look()

    async def close(self) -> None:
        self._watch.close()
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)

    def _changed(self) -> None:
        # A move looks again when it has ended.
        if self._moving is None:
            self._look()

    def _look(self) -> None:
        host = self._choose()
        interface = interface_of(host) if host else self._interface
        if not host:
            self._note(self._nowhere(), placed=False)
        elif host == self._host and (interface.name, interface.index) == (
            self._interface.name,
            self._interface.index,
        ):
            self._note(self._moved(host))
        else:
            self._moving = asyncio.get_running_loop().create_task(self._go(host, interface))

    def _choose(self) -> str:
        """Returns the address to use now; empty if there is none."""
        if is_here(self._wanted):
            return self._wanted
        return successor(self._wanted, self._interface.name, self._near, lasting_addresses())

    async def _go(self, host: str, interface: Interface) -> None:
        try:
            await self._move(host)
        except OSError as error:
            self._note(f"{self._gone()}, and the fabric cannot listen at {host}: {error}", placed=False)
            self._watch.soon(_AGAIN)
        else:
            self._host, self._interface = host, interface
            self._note(self._moved(host))
            self._watch.soon(_AGAIN)  # what changed meanwhile
        finally:
            self._moving = None

    # --- words

    def _note(self, trouble: str, *, placed: bool = True) -> None:
        self._placed = placed
        if trouble == self.trouble:
            return
        if trouble:
            _log.error("fabric's address is on no interface", address=self._wanted, reason=trouble)
        else:
            _log.info("fabric's address is back", address=self._wanted, interface=self._interface.name)
        self.trouble = trouble

    def _gone(self) -> str:
        return f"no interface of this host has {self._wanted}, the fabric's address"

    def _nowhere(self) -> str:
        name = self._interface.name
        if not name:
            return f"{self._gone()}: give --fabric the address of one, see `ip address`"
        return (
            f"{self._gone()}, and {name} has no other: other hosts cannot reach this one. Look at `ip address"
            f" show {name}`; an address that {name} gets is used at once"
        )

    def _moved(self, host: str) -> str:
        if host == self._wanted:
            return ""
        return (
            f"{self._gone()}, any more: the fabric uses {host} of {self._interface.name}, which other hosts"
            f" have been told. Change --fabric, or the flag that names {self._wanted}, before the next start"
        )
