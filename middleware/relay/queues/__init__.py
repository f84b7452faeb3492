"""AMQP's queues across hosts: definitions, messages, consumers."""
