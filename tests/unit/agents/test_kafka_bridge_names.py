"""Names at the other cluster, the records of MirrorMaker 2's topics, and settings that cannot be right."""

from __future__ import annotations

import msgspec
import pytest

from treecast.agents.common.settings import SettingsError
from treecast.agents.kafka_bridge.mirror import (
    Checkpoint,
    checkpoint,
    checkpoints_topic,
    heartbeat,
    offset_sync,
    offset_syncs_topic,
)
from treecast.agents.kafka_bridge.naming import Naming
from treecast.agents.kafka_bridge.settings import BridgeAgentSettings

PREFIX = Naming("lisbon", "oslo", True, ("orders*", "oslo.*", "rome.*"), ("orders.private",))
SAME = Naming("lisbon", "oslo", False, ("*",))


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "lisbon.orders"),
        ("orders.private", None),
        ("other", None),
        ("oslo.orders", None),  # it came from there
        ("rome.oslo.orders", None),  # and over Rome
        ("rome.orders", "lisbon.rome.orders"),
        ("heartbeats", "lisbon.heartbeats"),
        ("rome.heartbeats", "lisbon.rome.heartbeats"),
        ("oslo.heartbeats", None),
        ("orders.internal", None),
    ],
)
def test_names_with_a_prefix(topic: str, name: str | None) -> None:
    assert PREFIX.at_target(topic) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("heartbeats", "lisbon.heartbeats"),
        ("oslo.heartbeats", None),
        ("__consumer_offsets", None),
        ("mm2-offset-syncs.oslo.internal", None),
        ("lisbon.checkpoints.internal", None),
    ],
)
def test_the_same_names(topic: str, name: str | None) -> None:
    assert SAME.at_target(topic) == name


def test_records_of_mirrormaker() -> None:
    """Bytes as its OffsetSync, Checkpoint and Heartbeat write them."""
    sync = offset_sync("ab", 3, 5, 6, 9)
    assert sync.key == b"\0\x02ab\0\0\0\x03"
    assert sync.value == bytes(7) + b"\x05" + bytes(7) + b"\x06"
    point = checkpoint(Checkpoint("g", "a.t", 1, 2, 3, "m"), 9)
    assert point.key == b"\0\x01g\0\x03a.t\0\0\0\x01"
    assert point.value == b"\0\0" + bytes(7) + b"\x02" + bytes(7) + b"\x03\0\x01m"
    beat = heartbeat("a", "bc", 258)
    assert (beat.key, beat.value) == (b"\0\x01a\0\x02bc", b"\0\0" + bytes(6) + b"\x01\x02")
    assert offset_syncs_topic("oslo") == "mm2-offset-syncs.oslo.internal"
    assert checkpoints_topic("lisbon") == "lisbon.checkpoints.internal"


WAY = '[[kafka-bridge.ways]]\nfrom = "a"\nto = "{}"\ntopics = {}\n{}'
HEAD = '[agent]\nname = "x"\ndata = "y"\n[kafka-bridge.clusters.a]\n[kafka-bridge.clusters.b]\n'
BACK = '[[kafka-bridge.ways]]\nfrom = "b"\nto = "a"\ntopics = ["t"]\nnames = "same"'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD + "[kafka-bridge]\nways = []", "name one at least"),
        (HEAD + WAY.format("c", '["t"]', ""), "add a table"),
        (HEAD + WAY.format("a", '["t"]', ""), "are both a"),
        (HEAD + WAY.format("b", "[]", ""), "name topics of a->b"),
        (HEAD + WAY.format("b", '["t"]', BACK), "has to be the same"),
        (HEAD + WAY.format("b", '["t"]', "") + WAY.format("b", '["t"]', ""), "may be named once"),
        (HEAD + '[kafka-bridge.clusters."a.b"]\n' + WAY.format("b", '["t"]', ""), "letters, digits"),
    ],
)
def test_settings_that_cannot_be_right(text: str, reason: str) -> None:
    settings = msgspec.toml.decode(text, type=BridgeAgentSettings)
    with pytest.raises(SettingsError, match=reason):
        settings.check()
