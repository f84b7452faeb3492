"""`make demo`: Kafka clients of three kinds, two kills, no acknowledged record missing, and three faces."""
