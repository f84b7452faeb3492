"""Open loops: messages at a fixed rate, each timed from the moment at which it was due.

So time that a message waits to be sent counts as latency. The loop sleeps until the next message is due or
something arrives: epoll's own time-out has whole milliseconds, which at 1,000 messages a second would add
half a millisecond to every latency.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treecast.middleware.load.percentiles import Distribution, percentile, window_p99

STAMP = struct.Struct(">d")  # when a message was due, by time.perf_counter
SILENCE = 30.0  # seconds without progress after which a run has failed
_TOGETHER = 0.0001  # seconds: messages due within it may leave together, at rates that fill a core otherwise
_EXACT_NS = "1"  # timer slack; 50 us by default


class Silent(Exception):
    """Messages are missing, and nothing has come for `SILENCE` seconds."""


@dataclass
class OpenLoop:
    """`messages` at `rate` a second through `publisher`.

    `encode` makes a message with the given stamp. `poll` has all sockets of the run; `receive` reads those
    that are ready. `arrived` returns the number of messages that are through, at the consumer and, with
    confirms, at the publisher. `latencies` are the consumer's, in seconds.
    """

    rate: float
    messages: int
    publisher: socket.socket
    encode: Callable[[bytes], bytes]
    poll: select.epoll
    receive: Callable[[], None]
    arrived: Callable[[], int]
    latencies: list[float]
    _late: list[float] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Returns messages, seconds, percentiles of the latency and of how late messages were sent (s).

        Raises Silent if messages are missing.
        """
        with contextlib.suppress(OSError):
            Path("/proc/self/timerslack_ns").write_text(_EXACT_NS, "ascii")
        sent, pending = 0, b""
        began = heard = time.perf_counter()
        through = 0
        while through < self.messages:
            now = time.perf_counter()
            due = min(self.messages, int((now - began) * self.rate) + 1)
            if due > sent:
                times = [began + number / self.rate for number in range(sent, due)]
                pending += b"".join([self.encode(STAMP.pack(at)) for at in times])
                self._late += [now - at for at in times]
                sent = due
            if pending:
                with contextlib.suppress(BlockingIOError):
                    pending = pending[self.publisher.send(pending) :]
            self._wait(began + sent / self.rate, sent < self.messages)
            self.receive()
            if (found := self.arrived()) > through:
                through, heard = found, now
            if now - heard > SILENCE:
                raise Silent(f"{through} of {self.messages} messages came")
        return self._result(time.perf_counter() - began)

    def _wait(self, due: float, more: bool) -> None:
        left = due - time.perf_counter() if more else 1.0
        select.select([self.poll], [], [], max(left, _TOGETHER))

    def _result(self, seconds: float) -> dict[str, Any]:
        found = Distribution.of(self.latencies, self.rate)
        return {
            "records": self.messages,
            "seconds": seconds,
            "p50": found.p50,
            "p99": found.p99,
            "window_p99": found.window_p99,
            "lag_p99": percentile(sorted(self._late), 0.99),
            "lag_window_p99": window_p99(self._late, self.rate),
        }
