"""Topics that faces share: MQTT's `a/b/c` and Kafka's `a.b.c` are one topic while the Kafka topic exists.

Then its partitions are the only path: what MQTT clients publish is recorded by them, and MQTT subscribers are
fed from them. Whatever is published through either face is handed out once, and never comes back.
"""

from .bridge import Bridge, BridgeSettings

__all__ = ["Bridge", "BridgeSettings"]
