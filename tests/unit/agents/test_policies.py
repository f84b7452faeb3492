"""Policies of a RabbitMQ that name exchanges to carry."""

from __future__ import annotations

import msgspec
import pytest

from treecast.agents.rabbitmq.management import PolicyFound


@pytest.mark.parametrize(
    ("pattern", "apply_to", "exchange", "applies"),
    [
        ("^orders", "exchanges", "orders.eu", True),
        ("orders", "all", "my.orders", True),
        ("^orders$", "all", "orders.eu", False),
        ("orders", "queues", "orders", False),
        (".*", "all", "amq.topic", False),
        (".*", "all", "", False),
        ("(", "all", "orders", False),
    ],
)
def test_a_policy_applies_by_its_pattern_and_kind(
    pattern: str, apply_to: str, exchange: str, applies: bool
) -> None:
    told = {"name": "sites", "vhost": "/", "pattern": pattern, "apply-to": apply_to, "definition": {"a": 1}}
    assert msgspec.convert(told, PolicyFound).applies_to(exchange) is applies
