"""The load at a fixed rate by a small native program, which leaves more of the machine to the servers.

An interpreter that wakes three times for each record takes some 90 us of a core, and evicts cached data of
the servers. The program (pace.rs) only sends, receives and takes times; the usual source and sink check
everything afterwards, so a run fails for the same reasons.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

from treecast.middleware.load.frames import LoadError

from . import loops
from .ends import Sink, Source
from .rate import AtRate, FixedRate, Latency
from .stamp import MARK

_SOURCE = Path(__file__).with_name("pace.rs")
_CACHE = Path(__file__).resolve().parents[2] / ".cache"
_NS = 1e-9


def program() -> Path | None:
    """Returns the native program, building it if necessary; None without a Rust compiler."""
    built = _CACHE / f"pace-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}"
    if built.exists():
        return built
    compiler = shutil.which("rustc")
    if compiler is None:
        return None
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "pace.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unfinished = built.with_suffix(".new")
        command = [compiler, "--edition", "2021", "-C", "opt-level=3", "-o", str(unfinished), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"rustc refused {_SOURCE.name}:\n{done.stderr}")
        os.replace(unfinished, built)
    return built


def generator() -> str:
    """Returns the name of the generator of single records at a rate, for reports."""
    return "native" if program() else "Python"


def at_rate() -> type[AtRate]:
    """Returns the best available load."""
    return PacedRate if program() else FixedRate


class PacedRate(AtRate):
    """As FixedRate, but that times are nanoseconds after the start."""

    def __init__(self, source: Source, sink: Sink, *, rate: float, count: int, warmup: int) -> None:
        super().__init__(source, sink, rate=rate, count=count, warmup=warmup)
        if sink.filled:
            raise LoadError("something came to the receiver before the run")
        path = program()
        if path is None:
            raise LoadError("the native load generator needs a Rust compiler: rustc is not on the PATH")
        self._program = path
        self._frames = source.stamped(count, self._due)

    def run(self) -> Latency:
        source, sink, reply = self._source, self._sink, self._sink.reply()
        at, extra = sink.framing
        options = {
            "source": source.socket.fileno(),
            "sink": sink.socket.fileno(),
            "count": self._count,
            "interval": repr(self._interval),
            "mark": MARK.hex(),
            "at": at,
            "extra": extra,
            "reply": reply.frame.hex(),
            "reply_at": reply.at,
            "base": reply.base,
            "each": "mark" if reply.records_only else "frame",
            "after": round(loops.AFTER / _NS),
            "silence": round(loops.SILENCE / _NS),
        }
        done = subprocess.run(
            [str(self._program), *(f"{name}={value}" for name, value in options.items())],
            input=self._frames,
            capture_output=True,
            pass_fds=(source.socket.fileno(), sink.socket.fileno()),
            check=False,
        )
        if done.returncode:
            raise LoadError(f"the load generator ended: {done.stderr.decode(errors='replace').strip()}")
        return self._judge(done.stdout)

    def _judge(self, output: bytes) -> Latency:
        """Replays the received data to both ends, with its arrival times."""
        line, _, rest = output.partition(b"\n")
        said, taken = json.loads(line), memoryview(rest)
        self._sent_at = _numbers(taken, said["sent"])
        reads = _numbers(taken[8 * said["sent"] :], 2 * (said["answers"] + said["arrivals"]))
        data = taken[8 * (said["sent"] + len(reads)) :]
        answers, arrivals = reads[: 2 * said["answers"]], reads[2 * said["answers"] :]
        ended = 0
        for now, part in _parts(data, answers):
            self._source.take(part)
            self._answered_at.extend([now] * (self._source.acknowledged - len(self._answered_at)))
            ended = now
        for now, part in _parts(data[sum(answers[1::2]) :], arrivals):
            before = self._arrivals.arrived
            self._sink.take(part, now)
            ended = max(ended, now) if self._arrivals.arrived > before else ended
        if self._arrivals.arrived > self._count:
            raise LoadError(
                f"{self._arrivals.arrived - self._count} records more have arrived than were sent"
            )
        if said["why"] in ("source", "sink"):
            raise self._source.closed() if said["why"] == "source" else self._sink.closed()
        if said["why"] or len(self._answered_at) < self._count:
            raise LoadError(loops.silence(self._source, self._sink, self._count, self._count))
        return self._result(ended * _NS, said["cpu"] * _NS)


def _numbers(data: memoryview, count: int) -> list[int]:
    numbers = array("q", bytes(data[: 8 * count]))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _parts(data: memoryview, reads: list[int]) -> Iterator[tuple[int, memoryview]]:
    """Yields time and bytes of each read; `reads` alternates times and lengths."""
    start = 0
    for now, length in zip(reads[::2], reads[1::2], strict=True):
        yield now, data[start : start + length]
        start += length
