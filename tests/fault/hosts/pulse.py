"""How late this machine finishes a little work, as a process: what a busy machine adds to each latency.

Works for about a millisecond, a hundred times per second, as a daemon under load does; until its standard
input ends. Then prints a JSON list of [when the work was due to begin (s, a steady clock), how many ms later
it was done than on an idle machine].
"""

from __future__ import annotations

import json
import select
import sys
import time

EVERY_S = 0.01
WORK_S = 0.001
_TRIES = 50


def work(rounds: int) -> float:
    """Returns how long it took, in seconds."""
    begun = time.monotonic()
    total = 0
    for number in range(rounds):
        total += number
    return time.monotonic() - begun


def rounds_of_a_millisecond() -> int:
    rounds = 5000
    return int(rounds * WORK_S / min(work(rounds) for _ in range(_TRIES)))


def main() -> None:
    rounds, found = rounds_of_a_millisecond(), list[tuple[float, float]]()
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        due = max(due + EVERY_S, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        work(rounds)
        found.append((round(due, 6), round((time.monotonic() - due - WORK_S) * 1e3, 3)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
