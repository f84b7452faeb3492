"""`make demo`: Kafka clients of three kinds, two kills, and no acknowledged record missing."""
