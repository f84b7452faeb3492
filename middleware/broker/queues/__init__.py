"""Queues, exchanges and bindings of one host, independent of the client protocol.

This is a public module of the broker, beside `broker` itself. Names not exported here are internal; `host`
composes them (`Broker.queues`). Everything except `block_store` and `host` is pure: it takes `now` as an
argument and does no I/O.
"""

from . import needs
from .any_queue import AnyQueue
from .arguments import Overflow, QueueArguments, QueueType
from .consumers import Consumer, Counts
from .deaths import Death
from .elsewhere import RemotePart, RemoteQueue
from .entries import Declared
from .exchange import Binding, Destination, Exchange, ExchangeType
from .joined import Asker, JoinedQueues
from .message import HEAD, Part, Run, message, messages, skip
from .policies import Policy
from .policies import knows as knows_policy_key
from .policies import merged as merged_policies
from .queue import MessageQueue
from .reach import Ask, Defined, OtherHosts, QueueAnswer, QueueCall, QueueNotice, Reach, Write
from .recorder import Recorder
from .refusals import LONGEST_NAME, Reason, Refusal, not_found, text
from .routing import Outlet, by_content
from .settings import QueueSettings
from .shared import OutsideKind, SharedDefinitions, declared_key
from .spool import SPOOLS, taken_from
from .store import MemoryStore, RunStore
from .stream_start import OFFSET as STREAM_OFFSET
from .stream_start import StartKind, StreamStart, start_of
from .streams import Cursor, StreamLog, StreamQueue, Streams, unsupported
from .virtual_host import VirtualHost
from .virtual_hosts import CLUSTER_NAME, DEFAULT_TYPE, TYPES, LocalVirtualHosts, StreamHost

__all__ = [
    "Ask",
    "Asker",
    "Binding",
    "CLUSTER_NAME",
    "Consumer",
    "Counts",
    "Cursor",
    "DEFAULT_TYPE",
    "Death",
    "Declared",
    "Defined",
    "Destination",
    "Exchange",
    "ExchangeType",
    "HEAD",
    "JoinedQueues",
    "LONGEST_NAME",
    "LocalVirtualHosts",
    "MemoryStore",
    "AnyQueue",
    "MessageQueue",
    "OtherHosts",
    "Outlet",
    "OutsideKind",
    "Overflow",
    "Part",
    "Policy",
    "QueueAnswer",
    "QueueArguments",
    "QueueCall",
    "QueueNotice",
    "QueueSettings",
    "QueueType",
    "Reach",
    "Reason",
    "Recorder",
    "Refusal",
    "RemotePart",
    "RemoteQueue",
    "Run",
    "RunStore",
    "SPOOLS",
    "SharedDefinitions",
    "STREAM_OFFSET",
    "StartKind",
    "StreamHost",
    "StreamLog",
    "StreamQueue",
    "StreamStart",
    "Streams",
    "TYPES",
    "VirtualHost",
    "Write",
    "by_content",
    "declared_key",
    "knows_policy_key",
    "merged_policies",
    "message",
    "messages",
    "needs",
    "not_found",
    "skip",
    "start_of",
    "taken_from",
    "text",
    "unsupported",
]
