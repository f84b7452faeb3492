"""The bare loop of a switch: forwards whole frames from one packet socket to the others, one call each.

python -m bench.floor.switch sw0 sw1 sw2 ...       reads from the first
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress

from treecast.middleware.dataplane.softswitch.links import BATCH, open_end


def main() -> None:
    first, *others = (open_end(name) for name in sys.argv[1:])
    print("ready", flush=True)
    receive, sends = first.recv, [other.send for other in others]
    while select.select([first], [], []):
        with suppress(BlockingIOError):
            for _ in range(BATCH):
                frame = receive(65_600)
                for send in sends:
                    send(frame)


if __name__ == "__main__":
    main()
