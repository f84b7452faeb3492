"""The agent that joins Kafka clusters: topics of one are carried to the other, exactly once."""
