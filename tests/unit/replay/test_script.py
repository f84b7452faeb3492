"""Scripts of sessions: the example of CONTRIBUTING.md, and what a script must not let pass."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.mqtt.face import MemoryHost
from tests.unit.script import Like, Script

from treecast.shims.mqtt.codec import PUBACK, SUBACK
from treecast.shims.mqtt.codec_packets import Ack, FilterRequest, Publish, Suback, Subscribe


def test_the_example() -> None:
    host = MemoryHost()
    sub, pub = host.connected("s"), host.connected("p")
    sub << Subscribe(1, (FilterRequest(b"t", 1),)) >> Suback(SUBACK, 1, b"\1")
    pub << Publish(b"t", b"x", 1, packet_id=5) >> Ack(PUBACK, 5)
    sub >> Like(Publish, payload=b"x", qos=1)


class Echo(Script):
    """Its session sends back what it gets."""

    def __init__(self) -> None:
        self.left: list[object] = []

    def give(self, *given: object) -> None:
        self.left += given

    def take(self) -> list[Any]:
        left, self.left = self.left, []
        return left


@pytest.mark.parametrize("wanted", [[], 1, [2, 1], [1, 2, 3], [1, 3], [int, str], Like(int, real=1)])
def test_what_left_is_compared_as_a_whole_and_in_order(wanted: object) -> None:
    with pytest.raises(AssertionError, match=r"wanted .*, and what left is \[1, 2\]"):
        Echo() << [1, 2] >> wanted


def test_what_matches() -> None:
    assert Echo() << [1, "a"] << 2 >> [1, str, Like(int, real=2)] == [1, "a", 2]
    Echo() >> []
