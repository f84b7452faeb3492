"""The agent beside a RabbitMQ server."""
