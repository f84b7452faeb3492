"""`python -m treecast.middleware.control.trees FILE`: programs label switches, and tells publishers.

`description` documents FILE. Prints `ready` once everything is read back and acknowledged. Switches are
programmed before publishers must answer, because daemons may reach each other only through the switches; it
then waits for publishers (not with `--once`). SIGHUP reads the file again and changes to its trees, make
before break. With `adapt` it asks publishers regularly which receivers they send to, and changes to better
trees. SIGTERM ends it; switches keep their state.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from random import Random

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused, SwitchSession
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.routing.network import RoutingError

from .adapting import Observed, better_trees
from .description import Described, read
from .manager import Surroundings, TreeManager
from .publishers import Daemons, NotAcknowledged
from .store import FileStore

WAIT_SECONDS = 2.0  # between attempts to reach publishers that have not answered
FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotAcknowledged)


def main() -> int:
    parser = argparse.ArgumentParser(prog="trees", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--once", action="store_true", help="end when everything is programmed")
    parser.add_argument(
        "--token",
        metavar="TOKEN|@FILE",
        default=os.environ.get("TREECAST_TOKEN", ""),
        help="the cluster's join token, which daemons on other hosts ask for (default: TREECAST_TOKEN)",
    )
    given = parser.parse_args()
    try:
        token = _token(given.token) if given.token else None
        asyncio.run(_serve(given.file, token, once=given.once))
    except (*FAULTS, TreecastError) as error:
        print(f"trees: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _token(text: str) -> JoinToken:
    return JoinToken.parse(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)


async def _serve(path: Path, token: JoinToken | None, *, once: bool) -> None:
    described = read(path)
    network = described.network()
    described.chosen()  # checked before anything is written to a switch
    publishers = Daemons(described.controls(), token=token)
    async with contextlib.AsyncExitStack() as opened:
        sessions = {}
        for name, address in described.switches.items():
            session = await opened.enter_async_context(SwitchSession(address, name=name))
            await session.learn_program()
            sessions[network.node(name)] = session
        manager = TreeManager(
            network,
            sessions,
            publishers,
            FileStore(path.parent / described.store),
            limit=described.limit,
            life=described.packet_life,
            around=Surroundings(addresses=described.ways(network)),
        )
        if once:
            await _begin(manager, described)
            return
        await _begin_with_all(manager, described)
        await _follow(path, manager, publishers, described)


async def _begin_with_all(manager: TreeManager, described: Described) -> None:
    """Waits for publishers, and prints which ones and why when that changes."""
    said: tuple[str, ...] = ()
    while True:
        try:
            return await _begin(manager, described)
        except NotAcknowledged as error:
            if error.missing != said:
                said = error.missing
                text = "; ".join(said)
                print(f"trees: the switches are programmed; waiting for {text}", file=sys.stderr, flush=True)
        await asyncio.sleep(WAIT_SECONDS)


async def _begin(manager: TreeManager, described: Described) -> None:
    await manager.start()
    if described.adapt and manager.rules.trees:
        _print(manager)  # learned trees outlive the manager
    else:
        await _go(manager, described)


async def _go(manager: TreeManager, described: Described) -> None:
    trees = described.trees(manager.network)
    remark = described.remark(trees)
    if remark:
        print(f"trees: {remark}", file=sys.stderr, flush=True)
    await manager.update(trees)
    _print(manager)


def _print(manager: TreeManager) -> None:
    rules = manager.rules
    print(f"ready version={manager.version} trees={len(rules.trees)} rules={rules.total}", flush=True)


async def _follow(path: Path, manager: TreeManager, publishers: Daemons, described: Described) -> None:
    """Serves until SIGTERM. If a new file cannot be applied, the present state stays."""
    loop, again, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, again.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    seen, rng = Observed(manager.network), Random(described.seed)
    while not ended.is_set():
        waits = [asyncio.create_task(one.wait()) for one in (again, ended)]
        await asyncio.wait(waits, timeout=described.adapt or None, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        try:
            if again.is_set():
                again.clear()
                described = _read_again(path, described)
                await _go(manager, described)
            elif not ended.is_set():
                await _look(manager, publishers, seen, rng)
        except FAULTS as error:
            print(f"trees: {error}", file=sys.stderr, flush=True)


def _read_again(path: Path, described: Described) -> Described:
    changed = read(path)
    if (changed.links, changed.switches) != (described.links, described.switches):
        raise RoutingError("the network differs: restart the program")
    changed.chosen()
    return changed


async def _look(manager: TreeManager, publishers: Daemons, seen: Observed, rng: Random) -> None:
    """Reads what was sent since the last call, and updates the trees if better ones exist."""
    seen.add(await publishers.observed())
    trees = await asyncio.to_thread(better_trees, manager.rules, seen, rng)
    if trees is not None:
        await manager.update(trees)
        _print(manager)


if __name__ == "__main__":
    sys.exit(main())
