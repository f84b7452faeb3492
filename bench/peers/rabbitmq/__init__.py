"""RabbitMQ: an upstream and a downstream broker, joined by the federation plugin.

The server is the system's: the Debian package rabbitmq-server, or any `rabbitmq-server` on the PATH.
"""

from .federation import Federation
from .node import missing

__all__ = ["Federation", "missing"]
