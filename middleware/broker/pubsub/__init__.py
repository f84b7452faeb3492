"""Publish/subscribe of one host: filters, targets, queue settings, retained messages, the journal.

This is a public module of the broker, separate from `broker` itself: a host without the MQTT and AMQP faces
never loads it. Names not exported here are internal.
"""

from treecast.middleware.model.policies import QueuePolicy
from treecast.middleware.storage.block_log import SyncTicket

from .journal import Journal
from .message import (
    AGENTS,
    NEVER,
    Creditor,
    Message,
    Owed,
    PromisedRun,
    PublishRun,
    Run,
    RunScan,
    Subscriber,
    SubscriptionRecord,
    WillRecord,
    is_name,
    messages_in,
    run_of,
)
from .pubsub import PubSub, Recorder
from .reach import NoReach, Reach, Undecided, Waiter
from .restore import open_journal
from .settings import PubSubSettings
from .shared import Elsewhere, SharedGroup
from .subscriptions import Subscription, Target, Targets

__all__ = [
    "AGENTS",
    "Elsewhere",
    "Journal",
    "Message",
    "NEVER",
    "NoReach",
    "Owed",
    "PromisedRun",
    "PubSub",
    "PubSubSettings",
    "PublishRun",
    "QueuePolicy",
    "Reach",
    "Recorder",
    "Run",
    "RunScan",
    "Creditor",
    "SharedGroup",
    "Subscriber",
    "Subscription",
    "SubscriptionRecord",
    "SyncTicket",
    "Target",
    "Targets",
    "Undecided",
    "Waiter",
    "is_name",
    "messages_in",
    "open_journal",
    "run_of",
    "WillRecord",
]
