"""`python -m treecast.middleware.control.segments FILE`: programs SRv6 routers, and tells daemons of trees.

FILE is described in `description`. `ready` is printed when routers bring packets to each other and to hosts:
daemons may reach each other only by these. Then daemons are asked now and then which receivers they have, and
each set gets a tree; a line is printed for each change. SIGTERM ends it, and routers keep what they have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused, SwitchSession
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.routing.network import RoutingError

from .description import Described, next_run, read
from .manager import SegmentManager
from .publishers import Daemons, NotTold

FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotTold, TreecastError)


def main() -> int:
    parser = argparse.ArgumentParser(prog="segments", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--token",
        metavar="TOKEN|@FILE",
        default=os.environ.get("TREECAST_TOKEN", ""),
        help="the cluster's join token, which daemons on other hosts ask for (default: TREECAST_TOKEN);"
        " a file is read when it is there",
    )
    given = parser.parse_args()
    try:
        asyncio.run(_serve(given.file, given.token))
    except FAULTS as error:
        print(f"segments: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _token(text: str) -> JoinToken | None:
    """Returns None for a missing file: these routers may be needed to reach the first daemon."""
    if text.startswith("@"):
        path = Path(text[1:])
        return JoinToken.parse(path.read_text("utf-8")) if path.exists() else None
    return JoinToken.parse(text) if text else None


async def _serve(path: Path, token: str) -> None:
    described = read(path)
    described.plan(1)  # before anything is written
    plan = described.plan(next_run(path.parent / described.store))
    async with contextlib.AsyncExitStack() as opened:
        sessions = {}
        for name, address in described.routers.items():
            session = await opened.enter_async_context(SwitchSession(address, name=name))
            await session.learn_program()
            sessions[plan.network.node(name)] = session
        publishers = _Lately(described, token)
        manager = SegmentManager(plan, sessions, publishers, life=described.packet_life)
        await manager.start()
        print(f"ready run={plan.run}", flush=True)
        await _follow(manager, publishers, described.look)


class _Lately:
    """Daemons, with the token as it is when they are told."""

    def __init__(self, described: Described, token: str) -> None:
        self._controls = described.controls()
        self._token = token

    async def announce(self, version: int, told: dict[str, dict[tuple[str, ...], bytes]]) -> None:
        await Daemons(self._controls, _token(self._token)).announce(version, told)

    async def wanted(self) -> set[tuple[str, tuple[str, ...]]] | None:
        return await Daemons(self._controls).wanted()


async def _follow(manager: SegmentManager, publishers: _Lately, look: float) -> None:
    """Until SIGTERM. What cannot be done now is tried again at the next look."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    said = ""
    while not ended.is_set():
        try:
            wanted = await publishers.wanted()
            if wanted is not None and await manager.update(wanted):
                _print(manager)
            said = ""
        except FAULTS as error:
            if str(error) != said:
                said = str(error)
                print(f"segments: {said}", file=sys.stderr, flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), look)


def _print(manager: SegmentManager) -> None:
    trees, segments = len(manager.forest.groups), len(manager.forest.segments)
    print(f"version={manager.version} trees={trees} segments={segments}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
