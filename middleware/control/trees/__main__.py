"""`python -m treecast.middleware.control.trees FILE`: programs label switches, and tells publishers.

`description` documents FILE. Switches are programmed before publishers must answer, because daemons may reach
each other only through the switches; it then waits for publishers (not with `--once`), and prints `ready`
once everything is read back and acknowledged. It prints `down=` when links go down or come up, and `ready`
when trees have moved. SIGHUP reads the file again and changes to its links, switches and trees, make before
break. With `adapt` it asks publishers regularly which receivers they send to, and changes to better trees.
With `advice` it follows that of a pipeline; while some is valid, `adapt` only watches.
SIGTERM ends it; switches keep their state.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.model.errors import TreecastError

from ..membership import add_arguments, certified
from .controller import FAULTS, Controller
from .description import Described, read
from .probing import NONCE
from .publishers import Daemons
from .store import FileStore


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
    add_arguments(parser)
    given = parser.parse_args()
    try:
        token = _token(given.token) if given.token else None
        asyncio.run(_serve(given, token))
    except (*FAULTS, TreecastError) as error:
        print(f"trees: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _token(text: str) -> JoinToken:
    return JoinToken.parse(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)


async def _serve(given: argparse.Namespace, token: JoinToken | None) -> None:
    async with certified(given) as trust:
        await _control(given.file, token, trust, once=given.once)


async def _control(path: Path, token: JoinToken | None, trust: Path | None, *, once: bool) -> None:
    described = read(path)
    described.check()  # before anything is written to a switch
    store = FileStore(path.parent / described.store)

    def publishers(one: Described) -> Daemons:
        return Daemons(one.controls(), token=token, trust=trust)

    now = int(time.time())
    controller = Controller(path, described, store, publishers, now=now, nonce=os.urandom(NONCE))
    if store.remark:
        print(f"trees: {store.remark}", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, controller.read_again)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, controller.end)
    try:
        if once:
            await controller.once()
            return
        await controller.start()
        await controller.run()
    finally:
        await controller.close()


if __name__ == "__main__":
    sys.exit(main())
