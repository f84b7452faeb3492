"""Treecast: Kafka, AMQP and MQTT beside every application, one copy per link between hosts."""

__version__ = "0.1.0"
