"""Topic configuration: defaults, overrides, bounds."""

from __future__ import annotations

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TOPIC_CONFIG_KEYS, TopicConfig


def test_every_default_parses() -> None:
    for key in TOPIC_CONFIG_KEYS.values():
        key.parse(key.default)


def test_an_override_wins_over_the_daemons_default_over_kafkas() -> None:
    config = TopicConfig.of({"retention.ms": "5"}, {"retention.ms": "7", "segment.bytes": "100"})
    assert (config.retention_ms, config.segment_bytes, config.max_message_bytes) == (5, 100, 1048588)
    assert dict(config.overrides) == {"retention.ms": "5"}


@pytest.mark.parametrize("policy", ["", "delete", "compact", "compact,delete", " compact , delete "])
def test_cleanup_policies(policy: str) -> None:
    config = TopicConfig.of({"cleanup.policy": policy})
    assert (config.cleanup_delete, config.cleanup_compact) == ("delete" in policy, "compact" in policy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,shred"),
        ("compression.type", "brotli"),
        ("preallocate", "maybe"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(TreecastError) as refused:
        TopicConfig.of({name: value})
    assert refused.value.fault is Fault.INVALID_CONFIG
    assert name in refused.value.detail


@pytest.mark.parametrize("text", ["abc", "1_000", "\u0661", "", "1.5", "0x10", "9" * 5000])
def test_what_is_no_whole_number_is_said_so(text: str) -> None:
    with pytest.raises(TreecastError, match=r"expected (a whole number|-9.22337e\+18 to 9)"):
        TOPIC_CONFIG_KEYS["retention.bytes"].parse(text)


@pytest.mark.parametrize("text", ["abc", "nan", "inf", "1_0", "", ".", "1" * 8000 + "x"])
def test_what_is_no_number_is_said_so(text: str) -> None:
    with pytest.raises(TreecastError, match="expected a number"):
        TOPIC_CONFIG_KEYS["min.cleanable.dirty.ratio"].parse(text)
