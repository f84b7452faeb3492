"""Transactions: who may write under a transactional id, and what becomes of what was written (KIP-98).

`state` is the state machine as a table and the fencing rules, pure; `records` how a transaction lies on
disk; `producer_ids` hands out identities; `coordinator` is the asyncio edge that writes decisions,
markers and offsets in the order that survives a crash.
"""

from .coordinator import TransactionCoordinator, TransactionSettings
from .producer_ids import ProducerIds

__all__ = ["ProducerIds", "TransactionCoordinator", "TransactionSettings"]
