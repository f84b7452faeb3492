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
    Waiter,
    WillRecord,
    is_name,
    messages_in,
    run_of,
)
from .pubsub import PubSub
from .reach import NoReach, Reach, Undecided
from .restore import open_journal
from .settings import PubSubSettings
from .shared import Elsewhere, SharedGroup, SharedGroups
from .subscriptions import Recorder, Routes, Subscription, Target, Targets

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
    "Routes",
    "Run",
    "RunScan",
    "Creditor",
    "SharedGroup",
    "SharedGroups",
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
