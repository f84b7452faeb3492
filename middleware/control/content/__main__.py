"""`python -m treecast.middleware.control.content FILE`: has switches forward what hosts want.

FILE is described in `description`. `ready` is printed when switches bring plain traffic to hosts: daemons may
reach each other only by these. Then daemons are asked now and then what they want, and a line is printed for
each change. SIGTERM ends it, and switches keep what they have.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from ..membership import add_arguments, certified
from .controller import FAULTS, Controller
from .description import read
from .tables import ContentTables


def main() -> int:
    parser = argparse.ArgumentParser(prog="content", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--program", action="store_true", help="print the P4 program of the layout, and end")
    add_arguments(parser)
    given = parser.parse_args()
    try:
        if given.program:
            print(ContentTables(read(given.file).header()).text, end="")
        else:
            asyncio.run(_serve(given))
    except FAULTS as error:
        print(f"content: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(given: argparse.Namespace) -> None:
    async with certified(given) as trust:
        # Switches follow the controller with the higher election id, and each run begins later.
        controller = Controller(read(given.file), int(time.time()), trust)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, controller.end)
        try:
            await controller.start()
            print("ready", flush=True)
            await controller.run()
        finally:
            await controller.close()


if __name__ == "__main__":
    sys.exit(main())
