"""`make demo`: Kafka clients of three kinds, two kills, and nothing that was acknowledged is missing."""
