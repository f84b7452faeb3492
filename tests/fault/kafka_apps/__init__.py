"""Kafka Streams, Connect and MirrorMaker 2, killed in mid-stream: `python -m tests.fault.kafka_apps`."""
