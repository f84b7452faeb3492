"""The load on servers in a row: a sender at one end, a receiver at the other, in one process with one clock.

It speaks Kafka and AMQP 0-9-1 with frames that are encoded once. So the same loops serve both, and the
generator costs about the same, little, for either.
"""
