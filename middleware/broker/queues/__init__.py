"""Queues, exchanges and bindings of one host, independent of the client protocol.

This is a public module of the broker, separate from `broker` itself: a host without the AMQP face never loads
it. Names not exported here are internal. Everything except `block_store` is pure: it takes `now` as an
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
from .routing import Outlet
from .settings import QueueSettings
from .shared import OutsideKind, SharedDefinitions, declared_key
from .spool import SPOOLS, taken_from
from .store import MemoryStore, RunStore
from .stream_start import OFFSET as STREAM_OFFSET
from .stream_start import StartKind, StreamStart, start_of
from .streams import Cursor, StreamLog, StreamQueue, Streams, unsupported
from .virtual_host import VirtualHost

__all__ = [
    "Ask",
    "Asker",
    "Binding",
    "Consumer",
    "Counts",
    "Cursor",
    "Death",
    "Declared",
    "Defined",
    "Destination",
    "Exchange",
    "ExchangeType",
    "HEAD",
    "JoinedQueues",
    "LONGEST_NAME",
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
    "StreamLog",
    "StreamQueue",
    "StreamStart",
    "Streams",
    "VirtualHost",
    "Write",
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
