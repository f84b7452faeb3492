"""Local publish/subscribe. This is the public module: what is not exported here is the broker's own."""

from .cluster import (
    Cluster,
    Definitions,
    GroupHome,
    PartitionLeader,
    ReadWaiter,
    TransactionHome,
)

__all__ = [
    "Cluster",
    "Definitions",
    "GroupHome",
    "PartitionLeader",
    "ReadWaiter",
    "TransactionHome",
]
