"""Open loops: what they send, what they report, and that missing messages end them."""

import select
import socket

import pytest
from bench.workloads import open_loop
from bench.workloads.open_loop import STAMP, OpenLoop, Silent

RATE, MESSAGES = 2000.0, 100


class Mirror:
    """Returns the messages that it is sent, but for the last `lost`; notes when each was due."""

    def __init__(self, lost: int = 0) -> None:
        self.near, self._far = socket.socketpair()
        self.near.setblocking(False)
        self.poll = select.epoll()
        self.poll.register(self._far, select.EPOLLIN)
        self._lost = lost
        self.due: list[float] = []
        self.latencies: list[float] = []

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *_: object) -> None:
        self.poll.close()
        self.near.close()
        self._far.close()

    def loop(self) -> OpenLoop:
        sides = (self.near, lambda stamp: b"m" + stamp, self.poll, self.receive)
        return OpenLoop(RATE, MESSAGES, *sides, self.arrived, self.latencies)

    def receive(self) -> None:
        if self.poll.poll(0):
            data = self._far.recv(1 << 16)
            self.due += [STAMP.unpack_from(data, at + 1)[0] for at in range(0, len(data), 1 + STAMP.size)]
            self.latencies += [0.001] * (self.arrived() - len(self.latencies))

    def arrived(self) -> int:
        return min(len(self.due), MESSAGES - self._lost)


def test_each_message_carries_the_time_at_which_it_was_due() -> None:
    with Mirror() as mirror:
        found = mirror.loop().run()
    assert len(mirror.due) == found["records"] == MESSAGES
    assert mirror.due == pytest.approx([mirror.due[0] + number / RATE for number in range(MESSAGES)])
    assert found["p50"] == found["p99"] == 0.001
    assert found["seconds"] >= (MESSAGES - 1) / RATE  # none left before it was due
    assert 0 <= found["lag_window_p99"] <= found["lag_p99"]


def test_missing_messages_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop, "SILENCE", 0.2)
    with Mirror(lost=1) as mirror, pytest.raises(Silent, match=f"{MESSAGES - 1} of {MESSAGES} messages"):
        mirror.loop().run()
