"""`python -m treecast.middleware.control.trees FILE`: programs label switches, and tells publishers.

FILE is described in `description`. `ready` is printed once all is read back and acknowledged; SIGHUP reads
the file again and goes over to its trees, make before break; SIGTERM ends it, and switches keep what they
have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused, SwitchSession
from treecast.middleware.routing.errors import RoutingError

from .description import Described, read
from .manager import Surroundings, TreeManager
from .publishers import Daemons, NotAcknowledged
from .store import FileStore

FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotAcknowledged)


def main() -> int:
    parser = argparse.ArgumentParser(prog="trees", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--once", action="store_true", help="end when all is in place")
    given = parser.parse_args()
    try:
        asyncio.run(_serve(given.file, once=given.once))
    except FAULTS as error:
        print(f"trees: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(path: Path, *, once: bool) -> None:
    described = read(path)
    network = described.network()
    async with contextlib.AsyncExitStack() as opened:
        sessions = {}
        for name, address in described.switches.items():
            session = await opened.enter_async_context(SwitchSession(address, name=name))
            await session.learn_program()
            sessions[network.node(name)] = session
        manager = TreeManager(
            network,
            sessions,
            Daemons(described.controls()),
            FileStore(path.parent / described.store),
            limit=described.limit,
            life=described.packet_life,
            around=Surroundings(addresses=described.ways(network)),
        )
        await manager.start()
        await _go(manager, described)
        if not once:
            await _follow(path, manager, described)


async def _go(manager: TreeManager, described: Described) -> None:
    rules = await manager.update(described.trees(manager.network))
    print(f"ready version={manager.version} trees={len(rules.trees)} rules={rules.total}", flush=True)


async def _follow(path: Path, manager: TreeManager, described: Described) -> None:
    """Until SIGTERM. What a new file asks for and cannot be done leaves what is there as it is."""
    loop, again, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, again.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    while not ended.is_set():
        waits = [asyncio.create_task(one.wait()) for one in (again, ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if again.is_set() and not ended.is_set():
            again.clear()
            try:
                changed = read(path)
                if (changed.links, changed.switches) != (described.links, described.switches):
                    raise RoutingError("another network: start anew")
                await _go(manager, changed)
            except FAULTS as error:
                print(f"trees: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
