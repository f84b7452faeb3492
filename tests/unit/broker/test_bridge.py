"""The bridge follows the definitions, one topic at a time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from treecast.middleware.broker import Broker, BrokerSettings, ConfigChange, ConfigOperation, NewTopic
from treecast.middleware.broker.bridge import bridge as module
from treecast.middleware.broker.bridge.bridge import Bridge
from treecast.middleware.model.counters import BridgeCounters, Counters
from treecast.middleware.model.identity import Host


async def test_a_change_of_one_topic_looks_at_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(BrokerSettings(tmp_path), Host(1, "h"), Counters())
    await broker.start()
    definitions = broker.cluster.definitions
    hub: Any = MagicMock()
    hub.routes.direct.return_value = SimpleNamespace(count=0)
    bridge = Bridge(hub, MagicMock(), broker.cluster, BridgeCounters(), lambda: 0.0)
    bridge.recording = MagicMock(identified=True, start=AsyncMock(), identify=AsyncMock())
    await definitions.create_topic(NewTopic("early"))
    await bridge.start()

    looked: list[str] = []
    own = module.mqtt_name

    def looking(topic: str) -> bytes | None:
        looked.append(topic)
        return own(topic)

    monkeypatch.setattr(module, "mqtt_name", looking)
    names = [f"t.{number}" for number in range(40)]
    await definitions.create_topics([NewTopic(name) for name in names])
    assert looked == names
    assert all(bridge.records(f"t/{number}".encode()) for number in range(40))
    assert bridge.records(b"early")

    looked.clear()
    await definitions.delete_topic("t.1")
    await definitions.create_partitions("t.2", 3)
    await definitions.alter_topic("t.3", [ConfigChange("retention.ms", ConfigOperation.SET, "5")])
    await definitions.create_topic(NewTopic("t.1"))
    assert looked == ["t.1", "t.2", "t.3", "t.1"]
    assert bridge.records(b"t/1")
    await definitions.delete_topic("t.2")
    assert not bridge.records(b"t/2")
    await bridge.close()
    await broker.close()
