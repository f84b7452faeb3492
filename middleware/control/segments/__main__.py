"""`python -m treecast.middleware.control.segments FILE`: programs SRv6 routers, and tells daemons of trees.

FILE is described in `description`. `ready` is printed when routers bring packets to each other and to hosts:
daemons may reach each other only by these. Then daemons are asked now and then which receivers they have, and
each set gets a tree; a line is printed for each change, and one (`down=`) when links go down or come up.
SIGTERM ends it, and routers keep what they have. SIGHUP ends the kill switch of advice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from ..membership import add_arguments, certified
from .controller import FAULTS, Controller
from .description import next_run, read


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
    add_arguments(parser)
    given = parser.parse_args()
    try:
        asyncio.run(_serve(given))
    except FAULTS as error:
        print(f"segments: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(given: argparse.Namespace) -> None:
    async with certified(given) as trust:
        await _control(given.file, given.token, trust)


async def _control(path: Path, token: str, trust: Path | None) -> None:
    described = read(path)
    described.plan(1)  # before anything is written
    plan = described.plan(next_run(path.parent / described.store))
    controller = Controller(described, plan, token, trust, folder=path.parent)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, controller.end)
    loop.add_signal_handler(signal.SIGHUP, controller.resume)
    try:
        await controller.start()
        print(f"ready run={plan.run}", flush=True)
        await controller.run()
    finally:
        await controller.close()


if __name__ == "__main__":
    sys.exit(main())
