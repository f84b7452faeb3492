"""Transactions (KIP-98): fencing of producers by transactional id, and commit or abort of their writes.

`state` holds the state machine as a table and the fencing rules, pure. `records` defines the rows on disk.
`producer_ids` allots identities. `coordinator` is the asyncio edge, which writes decisions, markers and
offsets in a crash-safe order.
"""

from .coordinator import TransactionCoordinator, TransactionSettings
from .producer_ids import ProducerIds

__all__ = ["ProducerIds", "TransactionCoordinator", "TransactionSettings"]
