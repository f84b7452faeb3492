"""Publish/subscribe of one host: filters, targets, queues' settings, retained messages, the journal.

This is a public module of the broker, beside `broker` itself, so that a host without the MQTT and AMQP faces
never loads it: what is not exported here is its own.
"""

from treecast.middleware.model.policies import QueuePolicy
from treecast.middleware.storage.block_log import SyncTicket

from .journal import Journal
from .message import NEVER, Message, Run, Subscriber
from .pubsub import PubSub, Recorder
from .reach import NoReach, Reach, Waiter
from .records import Creditor, Owed, SubscriptionRecord, WillRecord
from .restore import open_journal
from .settings import PubSubSettings
from .shared import SharedGroup
from .subscriptions import Subscription, Target, Targets

__all__ = [
    "Journal",
    "Message",
    "NEVER",
    "NoReach",
    "Owed",
    "PubSub",
    "PubSubSettings",
    "QueuePolicy",
    "Reach",
    "Recorder",
    "Run",
    "Creditor",
    "SharedGroup",
    "Subscriber",
    "Subscription",
    "SubscriptionRecord",
    "SyncTicket",
    "Target",
    "Targets",
    "Waiter",
    "open_journal",
    "WillRecord",
]
