"""Publish/subscribe of one host: filters, targets, queues' settings, retained messages, the journal.

This is a public module of the broker, beside `broker` itself, so that a host without the MQTT and AMQP faces
never loads it: what is not exported here is its own.
"""

from treecast.middleware.model.policies import QueuePolicy
from treecast.middleware.storage.block_log import SyncTicket

from .journal import Journal
from .message import NEVER, Message, Run, Subscriber
from .pubsub import InterestListener, PubSub
from .records import Owed, SessionRecord, SubscriptionRecord
from .restore import open_journal
from .settings import PubSubSettings
from .subscriptions import Subscription, Target, Targets

__all__ = [
    "InterestListener",
    "Journal",
    "Message",
    "NEVER",
    "Owed",
    "PubSub",
    "PubSubSettings",
    "QueuePolicy",
    "Run",
    "SessionRecord",
    "Subscriber",
    "Subscription",
    "SubscriptionRecord",
    "SyncTicket",
    "Target",
    "Targets",
    "open_journal",
]
