"""Topics that faces share: MQTT's `a/b/c` and Kafka's `a.b.c` are one topic while the Kafka topic exists.

Its partitions are then the only path: they record what MQTT clients publish, and MQTT subscribers are fed
from them. A message published through either face is delivered once and is not published back.
"""

from .bridge import Bridge, BridgeSettings

__all__ = ["Bridge", "BridgeSettings"]
