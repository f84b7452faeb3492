"""kafka-python classes of messages that it cannot describe: its codec with this project's descriptors."""

from __future__ import annotations

import copy
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage

from treecast.shims.kafka.descriptors import DESCRIPTORS

MODULES: tuple[ModuleType, ...] = (admin, consumer, metadata, producer, sasl)


@cache
def kafka_python(name: str) -> Any:
    """Returns kafka-python's class for, say, `HeartbeatRequest`."""
    if name in DESCRIPTORS:
        described = copy.deepcopy(DESCRIPTORS[name])
        with patch("kafka.protocol.api_data.load_json", lambda *_, **__: described):
            return type(ApiMessage)(name, (ApiMessage,), {"__slots__": ()})
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))
