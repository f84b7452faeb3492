"""Runs of `segments.Attacked`: many short lives of a host, each from a seed of its own."""

from __future__ import annotations

import resource
import time
from typing import Final

from tests.fuzz.segments import Attacked, Step
from tests.replay import Log, kept

LIFE: Final = 2000  # steps
LOOK_EVERY: Final = 50  # steps
SLOW: Final = 0.1  # seconds of processor time that no step may take
GROWN: Final = 64 << 10  # KiB of resident memory beyond that of the first lives


class FoundError(Exception):
    """Something is wrong after a step. The text says what, and what shows it again."""


def live(seed: int, steps: int = LIFE) -> tuple[Log, float]:
    """One host's life. Returns its log, and the longest processor time of a step in seconds.

    Raises FoundError; then the log is kept.
    """
    log, longest = Log("segments", {"seed": seed}), 0.0
    host = Attacked(seed)
    try:
        with kept(log):
            for number in range(1, steps + 1):
                for step in host.round():
                    longest = max(longest, give(host, log, step))
                if number % LOOK_EVERY == 0 or number == steps:
                    give(host, log, host.look())
    except Exception as error:
        again = "; ".join(error.__notes__)
        raise FoundError(f"life {seed}, step {len(log.steps)}: {error!r}; {again}") from error
    finally:
        host.close()
    return log, longest


def give(host: Attacked, log: Log, step: Step) -> float:
    """Gives one step. Returns its processor time in seconds."""
    log.steps.append(step)
    before = time.process_time()
    host.step(*step)
    return time.process_time() - before


def command(seed: int, seconds: float) -> int:
    """Runs lives until the time is over, and prints what was found. Returns the exit status."""
    began = time.monotonic()
    longest, lives, settled = 0.0, 0, 0
    while time.monotonic() - began < seconds:
        try:
            longest = max(longest, live(seed + lives)[1])
        except FoundError as error:
            print(f"FOUND after {lives} lives: {error}")
            return 1
        lives += 1
        if lives == 5:
            settled = _peak()
        print(f"\r{lives} lives, longest step {longest * 1000:.1f} ms", end="", flush=True)
    grown = _peak() - settled if settled else 0
    print(f"\n{lives * LIFE} steps; longest {longest * 1000:.1f} ms of processor time; grown by {grown} KiB")
    bad = [f"a step took {longest:.2f} s"] * (longest > SLOW) + [f"memory grew by {grown} KiB"] * (
        grown > GROWN
    )
    print("FAIL: " + "; ".join(bad) if bad else "PASS")
    return int(bool(bad))


def _peak() -> int:
    """The largest resident memory so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
