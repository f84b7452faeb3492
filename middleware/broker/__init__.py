"""Local publish/subscribe. This is the public module: what is not exported here is the broker's own."""

from .broker import Broker
from .cluster import (
    Cluster,
    Definitions,
    GroupHome,
    PartitionLeader,
    ReadWaiter,
    TransactionHome,
)
from .long_poll import FetchWait
from .settings import BrokerSettings

__all__ = [
    "Broker",
    "BrokerSettings",
    "Cluster",
    "Definitions",
    "FetchWait",
    "GroupHome",
    "PartitionLeader",
    "ReadWaiter",
    "TransactionHome",
]
