"""The agent beside an Apache Kafka cluster: topics that the cluster leads, read at every host."""
